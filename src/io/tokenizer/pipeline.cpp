#include "io/tokenizer/pipeline.h"

#include "graft/error.h"
#include "io/format/utf8.h"

namespace graft::io {

// The whole text, also where most of it is then cut off: which of a pair is the longer one decides how both
// are cut.
std::vector<int64_t> TokenizerPipeline::tokenize(std::string_view text) const {
  std::vector<int64_t> ids;
  std::vector<Word> words;
  for (const auto& raw : added->split(text, /*normalized=*/false)) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      continue;
    }
    const std::string normal = normalizer ? normalizer->normalize(raw.text) : std::string(raw.text);
    for (const auto& span : added->split(normal, /*normalized=*/true)) {
      if (span.id >= 0) {
        ids.push_back(span.id);
        continue;
      }
      const Word whole{std::string(span.text),
                       raw.text.data() == text.data() && span.text.data() == normal.data()};
      words.clear();
      if (pre_tokenizer)
        pre_tokenizer->split(whole, words);
      else
        words.push_back(whole);
      for (const Word& word : words) model->tokenize(word.text, ids);
    }
  }
  return ids;
}

Tokenizer::Encoding TokenizerPipeline::encode(std::string_view text, std::optional<std::string_view> pair,
                                              bool add_special_tokens,
                                              std::optional<int64_t> max_length) const {
  check_utf8(text, "the text to encode");
  if (pair) check_utf8(*pair, "the pair to encode");

  std::vector<int64_t> ids = tokenize(text);
  std::optional<std::vector<int64_t>> pair_ids;
  if (pair) pair_ids = tokenize(*pair);
  std::vector<int64_t>* pair_pointer = pair_ids ? &*pair_ids : nullptr;

  if (max_length) {
    const int64_t special = add_special_tokens ? post_processor->added_tokens(pair.has_value()) : 0;
    if (*max_length < special)
      throw UsageError("[tokenizer] max_length " + std::to_string(*max_length) + " leaves no room for the " +
                       std::to_string(special) + " special tokens");
    truncate(ids, pair_pointer, *max_length - special, truncation);
  }
  return post_processor->process(ids, pair_pointer, add_special_tokens);
}

const std::string* TokenizerPipeline::token_of(int64_t id) const {
  if (const AddedToken* token = added->find(id)) return &token->pattern;
  return model->id_to_token(id);
}

}  // namespace graft::io
