// Stands in for src/io/icu/ in a build without ICU.
#include "io/tokenizer/unicode_text.h"

#include "io/no_icu/no_icu.h"

namespace graft::io {

std::unique_ptr<Normalizer> make_normal_form(NormalForm) { no_icu(); }
std::unique_ptr<Normalizer> make_lowercase() { no_icu(); }
std::unique_ptr<Normalizer> make_strip_accents() { no_icu(); }
std::unique_ptr<PreTokenizer> make_digits(bool) { no_icu(); }
std::unique_ptr<PreTokenizer> make_punctuation(Behavior) { no_icu(); }
std::unique_ptr<PreTokenizer> make_whitespace() { no_icu(); }

}  // namespace graft::io
