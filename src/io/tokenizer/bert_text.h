// BERT's text handling: the two parts of a tokenizer that need to know about Unicode characters, and \w of a
// regex.
//
// Implemented over ICU in src/io/icu/; src/io/no_icu/ has the same interface and throws.
#pragma once
#include <memory>
#include <optional>

#include "io/tokenizer/parts.h"

namespace graft::io {

struct BertNormalizerOptions {
  bool clean_text = true;             ///< drops control characters, turns all white space into ' '
  bool handle_chinese_chars = true;   ///< puts spaces around CJK ideographs, so that each becomes a word
  std::optional<bool> strip_accents;  ///< drops combining marks after decomposition; unset: if lowercase
  bool lowercase = true;
};

std::unique_ptr<Normalizer> make_bert_normalizer(const BertNormalizerOptions& options);

/// Splits at white space, and makes every punctuation character a word of its own.
std::unique_ptr<PreTokenizer> make_bert_pre_tokenizer();

/// What \w matches in Rust's regex: letters, marks, decimal digits, connectors, joiners.
bool is_word(char32_t c);

}  // namespace graft::io
