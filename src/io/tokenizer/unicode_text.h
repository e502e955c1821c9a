// Parts of tokenizers that need to know about characters, beside BERT's: normal forms, lower case, accents,
// digits, punctuation, words.
//
// Implemented over ICU in src/io/icu/; src/io/no_icu/ has the same interface and throws.
#pragma once
#include <memory>

#include "io/tokenizer/parts.h"
#include "io/tokenizer/word_split.h"

namespace graft::io {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

std::unique_ptr<Normalizer> make_normal_form(NormalForm form);
std::unique_ptr<Normalizer> make_lowercase();
/// Drops all marks.
std::unique_ptr<Normalizer> make_strip_accents();

/// Each digit by itself, or runs of them.
std::unique_ptr<PreTokenizer> make_digits(bool individual);
std::unique_ptr<PreTokenizer> make_punctuation(Behavior behavior);
/// Runs of word characters, and runs of others that are no white space.
std::unique_ptr<PreTokenizer> make_whitespace();

}  // namespace graft::io
