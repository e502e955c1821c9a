#include "adapters/replacement.h"

#include <ATen/ATen.h>

namespace graft::adapters {
namespace {

class Replacement : public Part {
 public:
  explicit Replacement(const PartBuild& build) : Part(build) {
    weight = parameter(build, "weight", build.layer.weight.sizes());
    if (build.layer.bias.defined()) bias = parameter(build, "bias", build.layer.bias.sizes());
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    weight.copy_(build.layer.weight);
    if (bias.defined()) bias.copy_(build.layer.bias);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto part = gate.part(x);
    // Ids of an embedding keep their dtype.
    const auto in = part.is_floating_point() ? cast_to(part, weight) : part;
    const auto made = layer().apply(in, weight, bias);
    return gate.is_all() ? made.to(layer().weight.scalar_type()) : gate.put(next(x), made);
  }

  void merge(Weights& weights) const override {
    weights.weight = weight.to(weights.weight.scalar_type());
    if (bias.defined()) weights.bias = bias.to(weights.weight.scalar_type());
  }

  bool exclusive() const override { return true; }

 private:
  at::Tensor weight, bias;
};

class BiasPart : public Part {
 public:
  BiasPart(const PartBuild& build, const std::string& suffix) : Part(build) {
    bias = parameter(build, suffix, build.layer.bias.sizes());
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    bias.copy_(build.layer.bias);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    auto change = bias - layer().bias;
    if (layer().kind() == nn::LayerKind::conv2d) change = change.view({1, -1, 1, 1});
    return gate.add(next(x), change);
  }

  void merge(Weights& weights) const override {
    weights.bias = weights.bias + (bias - layer().bias).to(weights.bias.scalar_type());
  }

 private:
  at::Tensor bias;
};

}  // namespace

std::shared_ptr<Part> replacement_part(const PartBuild& build) {
  return std::make_shared<Replacement>(build);
}

std::shared_ptr<Part> bias_part(const PartBuild& build, const std::string& suffix) {
  return std::make_shared<BiasPart>(build, suffix);
}

}  // namespace graft::adapters
