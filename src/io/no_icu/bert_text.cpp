// Stands in for src/io/icu/ in a build without ICU.
#include "io/tokenizer/bert_text.h"

#include "io/no_icu/no_icu.h"

namespace graft::io {

std::unique_ptr<Normalizer> make_bert_normalizer(const BertNormalizerOptions&) { no_icu(); }
std::unique_ptr<PreTokenizer> make_bert_pre_tokenizer() { no_icu(); }
bool is_word(char32_t) { no_icu(); }

}  // namespace graft::io
