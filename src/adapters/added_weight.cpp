#include "adapters/added_weight.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "graft/error.h"

namespace graft::adapters {

bool is_linear(const nn::WeightedLayer& layer) {
  return layer.kind() == nn::LayerKind::linear || layer.kind() == nn::LayerKind::conv1d;
}

AddedWeight::AddedWeight(const PartBuild& build) : Part(build) {
  if (!is_linear(build.layer)) build.refuse("it is for linear layers");
}

void AddedWeight::merge(Weights& weights) const {
  const auto delta = out_in(layer(), delta_weight());
  weights.weight = (weights.weight + delta).to(weights.weight.scalar_type());
}

at::Tensor widened(const at::Tensor& tensor) {
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return half ? tensor.to(at::kFloat) : tensor;
}

at::Generator seeded(int64_t seed) { return at::detail::createCPUGenerator(static_cast<uint64_t>(seed)); }

LinearSize largest(const std::vector<nn::WeightedLayer*>& layers) {
  LinearSize size;
  for (const auto* layer : layers) {
    if (!is_linear(*layer)) continue;  // refused when its part is built
    const auto weight = out_in(*layer, layer->weight);
    size = {std::max(size.out, weight.size(0)), std::max(size.in, weight.size(1))};
  }
  return size;
}

int64_t positive(const AdapterConfig& config, std::string_view field) {
  const auto value = config.integer(field);
  if (value <= 0)
    throw ConfigError("[adapters] \"" + std::string(field) + "\" must be at least 1, got " +
                      std::to_string(value));
  return value;
}

}  // namespace graft::adapters
