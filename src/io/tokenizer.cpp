// The public face of a tokenizer; the work is in tokenizer/pipeline.cpp.
#include "graft/tokenizer.h"

#include <algorithm>

#include "graft/error.h"
#include "io/tokenizer/pipeline.h"

namespace graft {
namespace {

void pad_to_longest(std::vector<Tokenizer::Encoding>& rows, const io::Padding& padding, int64_t multiple) {
  if (multiple < 1)
    throw UsageError("[tokenizer] pad_to_multiple_of must be at least 1, got " + std::to_string(multiple));
  // Also for rows that happen to be of one length, so that the error does not depend on the data.
  if (!padding.id)
    throw UsageError(
        "[tokenizer] this tokenizer has no pad token; pass padding = false, or set pad_token in "
        "tokenizer_config.json");
  size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.ids.size());
  const int64_t length = (static_cast<int64_t>(longest) + multiple - 1) / multiple * multiple;
  for (auto& row : rows) io::pad(row, length, padding);
}

std::vector<Tokenizer::Encoding> encode_rows(const io::TokenizerPipeline& parts,
                                             const std::vector<std::string>& texts,
                                             const std::vector<std::string>* pairs,
                                             const BatchEncodeOptions& options) {
  if (options.max_length && *options.max_length < 0)
    throw UsageError("[tokenizer] max_length must not be negative, got " +
                     std::to_string(*options.max_length));
  std::vector<Tokenizer::Encoding> rows;
  rows.reserve(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto pair = pairs ? std::optional<std::string_view>((*pairs)[i]) : std::nullopt;
    rows.push_back(parts.encode(texts[i], pair, options.add_special_tokens, options.max_length));
  }
  if (options.padding) pad_to_longest(rows, parts.padding, options.pad_to_multiple_of);
  return rows;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::from_pretrained(const std::filesystem::path& folder_or_file) {
  auto impl = std::make_unique<const Impl>(Impl{io::load_tokenizer(folder_or_file)});
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

Tokenizer::Encoding Tokenizer::encode(std::string_view text, std::optional<std::string_view> pair,
                                      bool add_special_tokens) const {
  return impl_->encode(text, pair, add_special_tokens, std::nullopt);
}

std::vector<Tokenizer::Encoding> Tokenizer::encode_batch(const std::vector<std::string>& texts,
                                                         const BatchEncodeOptions& options) const {
  return encode_rows(*impl_, texts, nullptr, options);
}

std::vector<Tokenizer::Encoding> Tokenizer::encode_pairs(const std::vector<std::string>& texts,
                                                         const std::vector<std::string>& pairs,
                                                         const BatchEncodeOptions& options) const {
  if (texts.size() != pairs.size())
    throw UsageError("[tokenizer] " + std::to_string(texts.size()) + " texts, but " +
                     std::to_string(pairs.size()) + " pairs");
  return encode_rows(*impl_, texts, &pairs, options);
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  for (const int64_t id : ids) {
    if (id < 0) throw UsageError("[tokenizer] cannot decode the negative id " + std::to_string(id));
    const std::string* token = impl_->token_of(id);
    if (token && !(skip_special_tokens && impl_->added->is_special(*token))) tokens.push_back(*token);
  }
  std::string text;
  if (impl_->decoder) impl_->decoder->decode(tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !impl_->decoder) text += ' ';
    text += tokens[i];
  }
  return text;
}

int64_t Tokenizer::vocab_size() const {
  const auto& added = impl_->added->all();
  return impl_->model->vocab_size() +
         std::count_if(added.begin(), added.end(), [&](const io::AddedToken& token) {
           return !impl_->model->token_to_id(token.content);
         });
}

std::optional<int64_t> Tokenizer::token_to_id(std::string_view token) const {
  if (const io::AddedToken* found = impl_->added->find(token)) return found->id;
  return impl_->model->token_to_id(token);
}

std::optional<std::string> Tokenizer::id_to_token(int64_t id) const {
  const std::string* token = impl_->token_of(id);
  return token ? std::optional(*token) : std::nullopt;
}

std::optional<int64_t> Tokenizer::pad_token_id() const { return impl_->padding.id; }

}  // namespace graft
