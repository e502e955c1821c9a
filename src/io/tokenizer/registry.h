// From the parts of a tokenizer.json to the classes that do their work. registry.cpp holds the lists of
// all known kinds.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "io/tokenizer/parts.h"

namespace graft::io {

// `value` is the part's object, or null where the file has none: then the result is null too (a model there
// must be). Throw ConfigError for an unknown type, listing the known ones, and for fields that are set but
// unknown.
std::unique_ptr<const Normalizer> make_normalizer(const nlohmann::json* value, const std::string& file);
std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const nlohmann::json* value, const std::string& file);
std::unique_ptr<const TokenModel> make_token_model(const nlohmann::json* value, const std::string& file);
std::unique_ptr<const PostProcessor> make_post_processor(const nlohmann::json* value,
                                                         const std::string& file);
std::unique_ptr<const Decoder> make_decoder(const nlohmann::json* value, const std::string& file);

}  // namespace graft::io
