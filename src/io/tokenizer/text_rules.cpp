#include "io/tokenizer/text_rules.h"

#include "io/format/quote.h"
#include "io/format/utf8.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/metaspace.h"
#include "io/tokenizer/token_regex.h"

namespace graft::io {
namespace {

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  std::string normalize(std::string_view text) const override {
    if (right_) text = trim_end(text);
    for (size_t pos = 0; left_ && pos < text.size();) {
      if (!is_white_space(next_code_point(text, pos))) break;
      text.remove_prefix(pos);
      pos = 0;
    }
    return std::string(text);
  }

 private:
  bool left_, right_;
};

class Replace final : public Normalizer {
 public:
  Replace(TokenRegex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string normalize(std::string_view text) const override { return pattern_.replaced(text, content_); }

 private:
  TokenRegex pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string content) : content_(std::move(content)) {}
  std::string normalize(std::string_view text) const override {
    return text.empty() ? "" : content_ + std::string(text);
  }

 private:
  std::string content_;
};

/// SentencePiece's "nmt" rules: some controls go, some characters become spaces.
class Nmt final : public Normalizer {
 public:
  std::string normalize(std::string_view text) const override {
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const char32_t c = next_code_point(text, pos);
      if (!is_dropped(c)) append_utf8(out, is_space(c) ? U' ' : c);
    }
    return out;
  }

 private:
  static bool is_dropped(char32_t c) {
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  }
  static bool is_space(char32_t c) {
    return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
           c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  }
};

class Split final : public PreTokenizer {
 public:
  Split(TokenRegex pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void split(const Word& word, std::vector<Word>& words) const override {
    auto stretches = pattern_.stretches(word.text);
    if (invert_)
      for (auto& each : stretches) each.matched = !each.matched;
    split_word(word, std::move(stretches), behavior_, words);
  }

 private:
  TokenRegex pattern_;
  Behavior behavior_;
  bool invert_;
};

template <class Matches>
std::unique_ptr<PreTokenizer> character_split(Matches matches, Behavior behavior) {
  return std::make_unique<CharacterSplit<Matches>>(matches, behavior);
}

}  // namespace

std::string NormalizerSequence::normalize(std::string_view text) const {
  std::string out(text);
  for (const auto& part : parts_) out = part->normalize(out);
  return out;
}

void PreTokenizerSequence::split(const Word& word, std::vector<Word>& words) const {
  std::vector<Word> now{word}, next;
  for (const auto& part : parts_) {
    next.clear();
    for (const Word& each : now) part->split(each, next);
    now.swap(next);
  }
  words.insert(words.end(), std::make_move_iterator(now.begin()), std::make_move_iterator(now.end()));
}

std::unique_ptr<Normalizer> strip_normalizer(Fields& fields) {
  return std::make_unique<Strip>(fields.boolean("strip_left"), fields.boolean("strip_right"));
}

std::unique_ptr<Normalizer> replace_normalizer(Fields& fields) {
  return std::make_unique<Replace>(read_pattern(fields, "pattern"), fields.string("content"));
}

std::unique_ptr<Normalizer> prepend_normalizer(Fields& fields) {
  return std::make_unique<Prepend>(fields.string("prepend"));
}

std::unique_ptr<Normalizer> nmt_normalizer(Fields&) { return std::make_unique<Nmt>(); }

std::unique_ptr<PreTokenizer> split_pre_tokenizer(Fields& fields) {
  return std::make_unique<Split>(read_pattern(fields, "pattern"), read_behavior(fields),
                                 fields.boolean("invert"));
}

std::unique_ptr<PreTokenizer> whitespace_split_pre_tokenizer(Fields&) {
  return character_split(is_white_space, Behavior::removed);
}

std::unique_ptr<PreTokenizer> char_delimiter_pre_tokenizer(Fields& fields) {
  const char32_t delimiter = read_character(fields, "delimiter");
  return character_split([delimiter](char32_t c) { return c == delimiter; }, Behavior::removed);
}

}  // namespace graft::io
