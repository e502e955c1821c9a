#include "adapters/replacement.h"

#include <ATen/ATen.h>

namespace graft::adapters {
namespace {

class Replacement : public Part {
 public:
  Replacement(const PartBuild& build, const std::string& prefix) : Part(build) {
    weight = parameter(build, prefix + "weight", build.layer.weight.sizes());
    if (build.layer.bias.defined()) bias = parameter(build, prefix + "bias", build.layer.bias.sizes());
    if (!build.fresh()) return;
    // Not into the float32 tensor that is there: PEFT keeps these copies in the base's dtype.
    weight.set_data(build.layer.weight.detach().clone());
    if (bias.defined()) bias.set_data(build.layer.bias.detach().clone());
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

std::shared_ptr<Part> replacement_part(const PartBuild& build, const std::string& prefix) {
  return std::make_shared<Replacement>(build, prefix);
}

std::shared_ptr<Part> bias_part(const PartBuild& build, const std::string& suffix) {
  return std::make_shared<BiasPart>(build, suffix);
}

}  // namespace graft::adapters
