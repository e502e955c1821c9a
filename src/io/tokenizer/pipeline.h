// A tokenizer put together: what Tokenizer holds, and what the loader builds.
#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "graft/tokenizer.h"
#include "io/tokenizer/added_tokens.h"
#include "io/tokenizer/batch_shape.h"
#include "io/tokenizer/parts.h"

namespace graft::io {

struct TokenizerPipeline {
  std::unique_ptr<const Normalizer> normalizer;       // may be null
  std::unique_ptr<const PreTokenizer> pre_tokenizer;  // may be null
  std::unique_ptr<const TokenModel> model;
  std::unique_ptr<const PostProcessor> post_processor;
  std::unique_ptr<const Decoder> decoder;  // may be null
  std::unique_ptr<const AddedTokens> added;
  Truncation truncation;
  Padding padding;

  Tokenizer::Encoding encode(std::string_view text, std::optional<std::string_view> pair,
                             bool add_special_tokens, std::optional<int64_t> max_length) const;
  /// The form of a token that decoding shows; null for an id without one.
  const std::string* token_of(int64_t id) const;

 private:
  std::vector<int64_t> tokenize(std::string_view text) const;
};

/// Reads a tokenizer.json, or the folder of a model.
TokenizerPipeline load_tokenizer(const std::filesystem::path& folder_or_file);

}  // namespace graft::io

namespace graft {
struct Tokenizer::Impl : io::TokenizerPipeline {};
}  // namespace graft
