#include "io/tokenizer/unicode_text.h"

#include "io/icu/code_points.h"
#include "io/tokenizer/bert_text.h"

namespace graft::io {
namespace {

std::u32string points_of(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) points += next_code_point(text, pos);
  return points;
}

std::string text_of(const std::u32string& points) {
  std::string text;
  for (const char32_t c : points) append_utf8(text, c);
  return text;
}

bool is_ascii(std::string_view text) {
  for (const char c : text)
    if (c & 0x80) return false;
  return true;
}

class Normal final : public Normalizer {
 public:
  explicit Normal(NormalForm form) : form_(form) {}
  std::string normalize(std::string_view text) const override {
    return is_ascii(text) ? std::string(text) : text_of(normal_form(points_of(text), form_));
  }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  std::string normalize(std::string_view text) const override {
    std::u32string lower;
    for (size_t pos = 0; pos < text.size();) append_lower(lower, next_code_point(text, pos));
    return text_of(lower);
  }
};

class StripAccents final : public Normalizer {
 public:
  std::string normalize(std::string_view text) const override {
    auto points = points_of(text);
    std::erase_if(points, is_mark);
    return text_of(points);
  }
};

class Whitespace final : public PreTokenizer {
 public:
  void split(const Word& word, std::vector<Word>& words) const override {
    const std::string_view text = word.text;
    size_t start = 0;
    Kind kind = Kind::space;
    const auto finish = [&](size_t end) {
      if (kind != Kind::space && start < end)
        words.push_back({std::string(text.substr(start, end - start)), word.first && start == 0});
      start = end;
    };
    for (size_t pos = 0; pos < text.size();) {
      const size_t here = pos;
      const char32_t c = next_code_point(text, pos);
      const Kind next = is_word(c) ? Kind::word : is_white_space(c) ? Kind::space : Kind::other;
      if (next != kind) finish(here);
      kind = next;
    }
    finish(text.size());
  }

 private:
  enum class Kind { word, space, other };
};

template <class Matches>
std::unique_ptr<PreTokenizer> character_split(Matches matches, Behavior behavior) {
  return std::make_unique<CharacterSplit<Matches>>(matches, behavior);
}

}  // namespace

std::unique_ptr<Normalizer> make_normal_form(NormalForm form) { return std::make_unique<Normal>(form); }
std::unique_ptr<Normalizer> make_lowercase() { return std::make_unique<Lowercase>(); }
std::unique_ptr<Normalizer> make_strip_accents() { return std::make_unique<StripAccents>(); }
std::unique_ptr<PreTokenizer> make_digits(bool individual) {
  return character_split(is_numeric, individual ? Behavior::isolated : Behavior::contiguous);
}
std::unique_ptr<PreTokenizer> make_punctuation(Behavior behavior) {
  return character_split(is_bert_punctuation, behavior);
}
std::unique_ptr<PreTokenizer> make_whitespace() { return std::make_unique<Whitespace>(); }

}  // namespace graft::io
