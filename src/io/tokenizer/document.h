// A tokenizer from what its files say, once they are read; knows no torch.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/pipeline.h"

namespace graft::io {

/// From tokenizer.json. `label` names the file in messages.
TokenizerPipeline build_tokenizer(const nlohmann::json& document, const std::string& label);

/// tokenizer_config.json fills in what `document`, the tokenizer.json, leaves open: sides and the pad token.
/// The rest of it is transformers' own.
void apply_tokenizer_config(const nlohmann::json& document, const nlohmann::json& config,
                            const std::string& label, TokenizerPipeline& parts);

/// From tokenizer.json's `added_tokens`, or null.
std::vector<AddedToken> read_added_tokens(const nlohmann::json* list, const std::string& label,
                                          const TokenizerPipeline& parts);

/// From SentencePiece's tokenizer.model. With a tokenizer_config.json as transformers' LlamaTokenizer;
/// without one
/// (`config` is null) as SentencePiece has it: nothing is put around a text.
TokenizerPipeline build_sentencepiece(std::string_view bytes, const std::string& label,
                                      const nlohmann::json* config, const std::string& config_label);

}  // namespace graft::io
