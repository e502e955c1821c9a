// The older form of a BERT tokenizer: a vocab.txt (one token a line, its number is the id) and a
// tokenizer_config.json. Both are turned into the tokenizer.json that transformers' BertTokenizer would make
// of them, so that there is one loader.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace graft::io {

/// `config` is the content of tokenizer_config.json, or an empty object. Throws ConfigError for fields of it
/// that are not known.
nlohmann::json bert_tokenizer_document(std::string_view vocab_txt, const nlohmann::json& config,
                                       const std::string& config_label);

/// A special token in tokenizer_config.json is a string or an object with a `content`.
std::string special_token_content(const nlohmann::json& value, const std::string& label);

}  // namespace graft::io
