// What methods have in common that add something to the weight of a linear layer.
#pragma once
#include "adapters/part.h"

namespace graft::adapters {

/// Of either spelling.
bool is_linear(const nn::WeightedLayer& layer);

class AddedWeight : public Part {
 public:
  /// ConfigError for a layer that is not linear, of either spelling.
  explicit AddedWeight(const PartBuild& build);
  void merge(Weights& weights) const override;

 protected:
  /// [out, in], in float32 where the adapter is in half precision, as PEFT computes it. While adapters are
  /// merged, the layer has the weight of before: what depends on it is measured against the base.
  virtual at::Tensor delta_weight() const = 0;
};

/// float32 in place of half precision.
at::Tensor widened(const at::Tensor& tensor);

/// torch.Generator().manual_seed(seed)
at::Generator seeded(int64_t seed);

/// How many output and input features the largest of the linear layers has, each for itself.
struct LinearSize {
  int64_t out = 0, in = 0;
};
LinearSize largest(const std::vector<nn::WeightedLayer*>& layers);

/// An integer field that must be at least 1.
int64_t positive(const AdapterConfig& config, std::string_view field);

}  // namespace graft::adapters
