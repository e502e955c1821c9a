// Stands in for src/io/icu/ in a build without ICU.
#include "io/bert_text.h"

#include "graft/error.h"

namespace graft::io {
namespace {
[[noreturn]] void no_icu() {
  throw Error(
      "[tokenizer] this graft was built without ICU, which this tokenizer needs; install libicu-dev and "
      "rebuild");
}
}  // namespace

std::unique_ptr<Normalizer> make_bert_normalizer(const BertNormalizerOptions&) { no_icu(); }
std::unique_ptr<PreTokenizer> make_bert_pre_tokenizer() { no_icu(); }
bool is_word(char32_t) { no_icu(); }

}  // namespace graft::io
