// Activations by the names transformers' ACT2FN gives them.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace graft::nn {

using Activation = at::Tensor (*)(const at::Tensor&);

/// ConfigError for a name that is not known, listing those that are. `key` is the config field it came from.
Activation activation(const std::string& name, std::string_view key = "hidden_act");

}  // namespace graft::nn
