// Several adapters of one method, LoRA or IA3, made into one: PEFT's add_weighted_adapter.
//
// Only the adapters are needed, no base model (but for DoRA): they say all of what they do to a layer.
#pragma once
#include <functional>

#include "graft/adapter_config.h"
#include "graft/peft.h"
#include "graft/safetensors.h"
#include "nn/weighted.h"

namespace graft::adapters {

struct WeightedSource {
  std::string name;
  AdapterConfig config;
  NamedTensors tensors;  ///< under their names in the adapter's file
  double weight;
  double scale = 1;  ///< what scale_adapter() made of it, beside what its configuration says
};

struct Combined {
  AdapterConfig config;
  NamedTensors tensors;
};

/// What only the base model knows.
struct CombineBase {
  /// The layer of that path; null where there is none.
  std::function<const nn::WeightedLayer*(const std::string& path)> find;
  std::vector<std::string> order;  ///< the paths of its layers as they follow each other
  bool merged = false;             ///< adapters are merged into its weights
  /// Draws the random numbers that an adapter of this configuration starts with.
  std::function<void(const AdapterConfig&)> draw_fresh;
};

/// UsageError where the adapters cannot be combined so, ConfigError for what no combination keeps (biases,
/// modules_to_save). DoRA needs the base: as in PEFT, the result's magnitudes are the base's own, those of
/// the adapters take no part. What DARE drops is drawn as in PEFT where there is a base: PEFT makes a fresh
/// adapter first, and goes through the layers in the model's order, which no file has.
Combined combine(const std::vector<WeightedSource>& sources, const CombineOptions& options,
                 const CombineBase* base = nullptr);

}  // namespace graft::adapters
