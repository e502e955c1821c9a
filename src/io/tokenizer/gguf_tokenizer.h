// The tokenizer.json that a GGUF file's metadata stand for, so that there is one loader; as transformers
// makes it of them.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "io/format/gguf_header.h"

namespace graft::io {

/// Throws ConfigError for metadata that are missing, contradict each other or ask for what is not known.
nlohmann::json gguf_tokenizer_document(const GgufHeader& header, const std::string& label);

/// The special tokens, under the names that tokenizer_config.json has for them ("pad_token").
std::map<std::string, std::string> gguf_special_tokens(const GgufHeader& header, const std::string& label);

/// What a checkpoint's folder would have beside its weights: tokenizer.json and tokenizer_config.json with
/// the special tokens and the chat templates. None for a file without tokens.
std::map<std::string, nlohmann::json> gguf_tokenizer_files(const GgufHeader& header,
                                                           const std::string& label);

/// The token under `tokenizer.ggml.NAME_token_id`; none where the file has no such key.
const std::string* gguf_special_token(const GgufHeader& header, const std::string& name,
                                      const std::string& label);

}  // namespace graft::io
