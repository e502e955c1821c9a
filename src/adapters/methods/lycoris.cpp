#include "adapters/methods/lycoris.h"

#include <ATen/ATen.h>

#include "graft/error.h"

namespace graft::adapters {

LycorisPart::LycorisPart(const PartBuild& build, bool scales_rank_dropout)
    : Part(build),
      rank_dropout_(build.config.number("rank_dropout")),
      module_dropout_(build.config.number("module_dropout")),
      scales_rank_dropout_(scales_rank_dropout) {
  r_ = static_cast<int64_t>(build.by_pattern("rank_pattern", static_cast<double>(build.config.integer("r"))));
  if (r_ <= 0)
    throw ConfigError("[adapters] \"r\" must be at least 1, got " + std::to_string(r_) + " for \"" +
                      build.path + "\"");
  scaling_value_ = build.by_pattern("alpha_pattern", build.config.number("alpha")) / static_cast<double>(r_);
  scaling_ = constant("scaling", at::scalar_tensor(scaling_value_, build.options()));
}

at::Tensor LycorisPart::forward(const at::Tensor& x, const Next& next, const Gate& gate) {
  const auto y = next(x);
  return gate.add(y, dropped(delta(gate.part(x).to(dtype())) * scaling_));
}

at::Tensor LycorisPart::dropped(at::Tensor added) const {
  if (!is_training() || (rank_dropout_ <= 0 && module_dropout_ <= 0)) return added;
  const auto kept = [&](int64_t count, double p) {
    return (at::rand({count}, added.options()) > p).to(added.scalar_type());
  };
  added = added * kept(1, module_dropout_);  // PEFT draws this one whatever the probability
  if (rank_dropout_ > 0) {
    const bool image = layer().kind() == nn::LayerKind::conv2d;
    auto rows = kept(added.size(image ? 1 : -1), rank_dropout_);
    if (scales_rank_dropout_) rows = rows / rows.mean();
    added = added * (image ? rows.view({1, -1, 1, 1}) : rows);
  }
  return added;
}

void LycorisPart::merge(Weights& weights) const {
  weights.weight = (weights.weight + delta_weight() * scaling_).to(weights.weight.scalar_type());
}

bool LycorisPart::scale(double factor) {
  scaling_value_ *= factor;
  scaling_.fill_(scaling_value_);
  return true;
}

void check_lycoris_layer(const PartBuild& build) {
  const auto kind = build.layer.kind();
  if (kind != nn::LayerKind::linear && kind != nn::LayerKind::conv2d)
    build.refuse("it is for Linear and Conv2d layers");
}

at::Tensor cp_kernel(const at::Tensor& core, const at::Tensor& a, const at::Tensor& b) {
  const int64_t r = core.size(0), out = a.size(1), in = b.size(1);
  const auto rows = at::mm(a.t(), core.reshape({r, -1})).view({out, r, -1});
  return at::matmul(rows.transpose(1, 2), b).transpose(1, 2).reshape({out, in * core.size(2) * core.size(3)});
}

bool has_cp_kernel(const PartBuild& build) {
  const auto& weight = build.layer.weight;
  return build.config.boolean("use_effective_conv2d") && weight.dim() == 4 &&
         weight.size(2) * weight.size(3) > 1;
}

}  // namespace graft::adapters
