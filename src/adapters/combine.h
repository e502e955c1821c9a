// Several adapters of one method, LoRA or IA3, made into one: PEFT's add_weighted_adapter.
//
// Only the adapters are needed, no base model: they say all of what they do to a layer.
#pragma once
#include "graft/adapter_config.h"
#include "graft/peft.h"
#include "graft/safetensors.h"

namespace graft::adapters {

struct WeightedSource {
  std::string name;
  AdapterConfig config;
  NamedTensors tensors;  ///< under their names in the adapter's file
  double weight;
};

struct Combined {
  AdapterConfig config;
  NamedTensors tensors;
};

/// UsageError where the adapters cannot be combined so, ConfigError for what no combination keeps (DoRA's
/// magnitudes, biases, modules_to_save).
Combined combine(const std::vector<WeightedSource>& sources, const CombineOptions& options);

}  // namespace graft::adapters
