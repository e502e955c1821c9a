// What the Rust crates under Hugging Face's `tokenizers` 0.23 think of a code point.
//
// They carry tables of different Unicode versions: general categories are those of 8.0
// (`unicode_categories`), decomposition and combining classes those of 9.0
// (`unicode-normalization-alignments`), \w that of 16.0 (`regex-syntax`), lower case that of 17.0 (the
// standard library). ICU knows since when a character exists, so an older table is today's without the
// younger characters; the few characters whose category has changed since are listed.
// tests/oracle/test_tokenizer_live.py compares every code point there is.
#pragma once
#include <string>

#include "io/tokenizer/unicode_text.h"

namespace graft::io {

/// Cc, Cf or Co of Unicode 8.0.
bool is_other(char32_t c);
/// Pc, Pd, Ps, Pe, Pi, Pf or Po of Unicode 8.0, or any ASCII character that is neither letter, digit, space
/// nor control.
bool is_bert_punctuation(char32_t c);
/// Mn of Unicode 8.0.
bool is_nonspacing_mark(char32_t c);
/// The blocks that BERT calls Chinese, as the Rust library has them: its last but two starts at U+2B920,
/// BERT's own code says U+2B820.
bool is_chinese(char32_t c);

/// Lower case without context: a capital sigma at a word's end is no special case.
void append_lower(std::u32string& out, char32_t c);
/// NFD of Unicode 9.0.
std::u32string decompose(const std::u32string& text);
/// Any of the four forms, of Unicode 9.0.
std::u32string normal_form(const std::u32string& text, NormalForm form);
/// Mn, Mc or Me of Unicode 9.0.
bool is_mark(char32_t c);
/// Nd, Nl or No of Unicode 17.0 (the standard library's char::is_numeric).
bool is_numeric(char32_t c);

}  // namespace graft::io
