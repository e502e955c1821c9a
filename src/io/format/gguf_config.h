// The config.json that a GGUF file stands for: its metadata under transformers' names, as transformers itself
// reads them.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "io/format/gguf_header.h"

namespace graft::io {

/// How an architecture's tensors differ from transformers': what llama.cpp's converter did to them.
struct GgufArchitecture {
  std::string_view name;        ///< of `general.architecture`
  std::string_view model_type;  ///< transformers'
  std::string_view class_name;  ///< with the head for the next token
  bool permutes_qk = false;     ///< rows of q and k are interleaved for another form of rotary positions
  bool norms_plus_one = false;  ///< norm weights w are stored as 1 + w
  bool four_norms = false;      ///< a norm before and after both halves of a layer
};

/// By `general.architecture`; ConfigError listing the known ones.
const GgufArchitecture& gguf_architecture(const GgufHeader& header, const std::string& label);

/// Throws ConfigError for what is missing, of the wrong kind or not supported. Settings of the architecture
/// that are not known keep their GGUF name, so that the model reports them as unread.
nlohmann::json gguf_config(const GgufHeader& header, const std::string& label);

}  // namespace graft::io
