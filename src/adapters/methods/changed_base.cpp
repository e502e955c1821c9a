#include "adapters/methods/changed_base.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "adapters/methods/lora.h"

namespace graft::adapters {
namespace {

/// Its tensors follow from the base, and are in no file.
class ChangedBase : public Part {
 public:
  /// The weight, [rows, columns] on all layers that share it, loses b a.
  ChangedBase(const PartBuild& build, const at::Tensor& a, const at::Tensor& b)
      : Part(build), a_(constant("taken_A", a.clone())), b_(constant("taken_B", b.clone())) {}

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto y = next(x);
    const auto part = gate.part(x);
    if (layer().kind() == nn::LayerKind::embedding)
      return gate.add(y, -at::matmul(at::embedding(b_, part), a_));
    return gate.add(y, -at::linear(at::linear(part, cast_to(a_, part)), cast_to(b_, part)));
  }

  void merge(Weights& weights) const override {
    weights.weight = without(weights.weight);
    weights.base = without(weights.base);
  }

  at::Tensor base_weight() const override { return without(layer().weight); }

  bool silence() override {
    const at::NoGradGuard no_grad;
    b_.zero_();
    return true;
  }

 private:
  at::Tensor without(const at::Tensor& weight) const {
    return (weight.to(a_.scalar_type()) - at::matmul(b_, a_)).to(weight.scalar_type());
  }

  at::Tensor a_, b_;
};

}  // namespace

void add_changed_bases(Adapter& adapter, const PreTrainedModel& model,
                       const std::function<PartBuild(const Target&)>& build) {
  std::vector<Adapter::Placed> changed;
  for (const auto& placed : adapter.parts) {
    const auto* lora = dynamic_cast<const LoraPart*>(placed.part.get());
    const auto taken = lora ? lora->taken() : LoraPart::Taken();
    // Conv1D's weight is no embedding's.
    if (!taken.a.defined() || placed.target.layer->kind() != nn::LayerKind::linear) continue;
    for (const auto& other : weighted_layers(model)) {
      if (other.layer == placed.target.layer || !other.layer->weight.is_same(placed.target.layer->weight))
        continue;
      changed.push_back({other, kChangedBase, std::make_shared<ChangedBase>(build(other), taken.a, taken.b)});
      for (const auto& each : adapter.parts)
        if (auto* own = dynamic_cast<LoraPart*>(each.part.get()); own && each.target.path == other.path)
          own->goes_with(taken);
    }
  }
  adapter.parts.insert(adapter.parts.end(), changed.begin(), changed.end());
}

}  // namespace graft::adapters
