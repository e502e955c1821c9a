// BertNormalizer and BertPreTokenizer, over ICU.
#include "io/tokenizer/bert_text.h"

#include <algorithm>

#include "io/format/utf8.h"
#include "io/icu/code_points.h"

namespace graft::io {
namespace {

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const BertNormalizerOptions& options)
      : options_(options), strip_accents_(options.strip_accents.value_or(options.lowercase)) {}

  std::string normalize(std::string_view text) const override {
    std::u32string points = read(text);
    if (strip_accents_) strip_accents(points);
    if (options_.lowercase) {
      std::u32string lower;
      lower.reserve(points.size());
      for (const char32_t c : points) append_lower(lower, c);
      points = std::move(lower);
    }
    std::string out;
    out.reserve(text.size());
    for (const char32_t c : points) append_utf8(out, c);
    return out;
  }

 private:
  // clean_text and handle_chinese_chars, in one go.
  std::u32string read(std::string_view text) const {
    std::u32string points;
    points.reserve(text.size());
    for (size_t pos = 0; pos < text.size();) {
      char32_t c = next_code_point(text, pos);
      if (options_.clean_text) {
        // Tab, newline and carriage return are controls too, but count as white space here; U+0085 does not,
        // and goes.
        const bool kept_control = c == '\t' || c == '\n' || c == '\r';
        if (c == 0xFFFD || (!kept_control && is_other(c))) continue;
        if (is_white_space(c)) c = ' ';
      }
      if (options_.handle_chinese_chars && is_chinese(c))
        points += {U' ', c, U' '};
      else
        points += c;
    }
    return points;
  }

  static void strip_accents(std::u32string& points) {
    // Nothing below U+00C0 decomposes or is a mark.
    if (std::none_of(points.begin(), points.end(), [](char32_t c) { return c >= 0xC0; })) return;
    points = decompose(points);
    std::erase_if(points, is_nonspacing_mark);
  }

  BertNormalizerOptions options_;
  bool strip_accents_;
};

class BertPreTokenizer final : public PreTokenizer {
 public:
  void split(const Word& whole, std::vector<Word>& words) const override {
    const std::string_view text = whole.text;
    size_t word = 0;  // where the current word starts
    const auto add = [&](size_t start, size_t end) {
      words.push_back({std::string(text.substr(start, end - start)), whole.first && start == 0});
    };
    const auto finish_word = [&](size_t end) {
      if (end > word) add(word, end);
    };
    for (size_t pos = 0; pos < text.size();) {
      const size_t start = pos;
      const char32_t c = next_code_point(text, pos);
      const bool punctuation = is_bert_punctuation(c);
      if (!punctuation && !is_white_space(c)) continue;
      finish_word(start);
      if (punctuation) add(start, pos);
      word = pos;
    }
    finish_word(text.size());
  }
};

}  // namespace

std::unique_ptr<Normalizer> make_bert_normalizer(const BertNormalizerOptions& options) {
  return std::make_unique<BertNormalizer>(options);
}

std::unique_ptr<PreTokenizer> make_bert_pre_tokenizer() { return std::make_unique<BertPreTokenizer>(); }

}  // namespace graft::io
