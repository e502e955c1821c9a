#include "adapters/methods/lora_linear.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "adapters/gate_ops.h"
#include "adapters/low_rank.h"

namespace graft::adapters {
namespace {

/// One product with all A's side by side, the rows' choice on what comes out, one product with all B's: two
/// small products for any number of adapters, with their gradients.
at::Tensor side_by_side(const LowRank& adapters, const at::Tensor& table, const at::Tensor& x,
                        const at::Tensor& y) {
  const bool one = adapters.a.size() == 1;
  // What an adapter holds that no row chose (NaN, infinity) is nothing to the others' gradients.
  const auto in_use = [&](std::vector<at::Tensor> weights) {
    if (!at::GradMode::is_enabled()) return weights;
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = at::where(table.select(1, adapters.slots[i]).any(), weights[i],
                             at::zeros({}, weights[i].options()));
    return weights;
  };
  const auto as = in_use(adapters.a), bs = in_use(adapters.b);
  const auto low = at::linear(x, one ? as[0] : at::cat(as, 0));
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = table.size(0);
  std::vector<at::Tensor> gated;
  int64_t first = 0;
  for (size_t i = 0; i < adapters.a.size(); ++i) {
    const auto rank = adapters.a[i].size(0), slot = adapters.slots[i];
    const auto part = one ? low : low.narrow(-1, first, rank);
    gated.push_back(gate_keep(table.select(1, slot).view(shape), part * adapters.scaling[i], table, slot));
    first += rank;
  }
  const auto chosen = one ? gated[0] : at::cat(gated, -1);
  return y + at::linear(chosen, one ? bs[0] : at::cat(bs, 1));
}

bool wants_gradient(const LowRank& adapters, const at::Tensor& x, const at::Tensor& y) {
  if (!at::GradMode::is_enabled()) return false;
  const auto any = [](const std::vector<at::Tensor>& tensors) {
    return std::any_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.requires_grad(); });
  };
  return x.requires_grad() || y.requires_grad() || any(adapters.a) || any(adapters.b);
}

/// A GPU's takes any number of adapters, and halves. The CPU's has one dtype; there a lone adapter has no
/// rows to sort, and its A is multiplied together with those of the layer's siblings.
bool has_kernel_for(const LowRank& adapters, const at::Tensor& x, const at::Tensor& y) {
  if (x.is_cuda()) return x.scalar_type() == y.scalar_type();
  const auto dtype = adapters.a[0].scalar_type();
  return adapters.a.size() > 1 && x.scalar_type() == dtype && y.scalar_type() == dtype;
}

at::Tensor all_at_once(const std::vector<const Part*>& parts, const std::vector<int64_t>& slots,
                       const at::Tensor& table, const at::Tensor& x, const at::Tensor& y) {
  LowRank adapters{.slots = slots};
  for (const auto* part : parts) {
    const auto& lora = dynamic_cast<const LoraPart&>(*part);
    adapters.a.push_back(lora.A);
    adapters.b.push_back(lora.B);
    adapters.scaling.push_back(lora.scale_factor());
  }
  const auto in = cast_to(x, adapters.a[0]);
  // Where all rows of a batch share one (positions), rows of x are not rows of the table.
  if (x.size(0) != table.size(0) || !has_kernel_for(adapters, x, y) || wants_gradient(adapters, in, y))
    return side_by_side(adapters, table, in, y).to(y.scalar_type());
  return low_rank_add(y.reshape({-1, y.size(-1)}), x.reshape({-1, x.size(-1)}), adapters, table)
      .view(y.sizes());
}

}  // namespace

LoraLinear::LoraLinear(const PartBuild& build) : LoraLinear(build, Blocks{}) { finish(build); }

LoraLinear::LoraLinear(const PartBuild& build, Blocks blocks) : LoraPart(build) {
  const int64_t in = build.in_features(), out = build.out_features();
  A = parameter(build, "lora_A.weight", {r_, in / blocks.a}, trains_a(build));
  B = parameter(build, "lora_B.weight", {out, r_ / blocks.b}, trains_b(build));
  if (build.config.boolean("lora_bias")) B_bias = parameter(build, "lora_B.bias", {out});
  if (build.config.boolean("use_dora")) magnitude = parameter(build, "lora_magnitude_vector", {out});
}

at::Tensor LoraLinear::forward(const at::Tensor& x, const Next& next, const Gate& gate) {
  auto y = next(x);
  const auto part = cast_to(gate.part(x), A);
  if (magnitude.defined()) return gate.put(y, dora(part, gate.part(y)));
  return gate.add(y, without_taken(low_rank(dropped(part)), part));
}

Joint LoraLinear::joint() const {
  const bool plain = !magnitude.defined() && !B_bias.defined() && !taken_A_.defined() &&
                     A.scalar_type() == at::kFloat && !(dropout_ > 0 && is_training());
  return plain ? all_at_once : nullptr;
}

at::Tensor LoraLinear::product(const at::Tensor& a, const at::Tensor& b) const {
  const auto delta = at::matmul(b, a);
  return layer().kind() == nn::LayerKind::conv1d ? delta.t() : delta;
}

at::Tensor LoraLinear::factor_view(const at::Tensor& factor) const {
  return factor.view(layer().kind() == nn::LayerKind::conv1d ? at::IntArrayRef{1, -1}
                                                             : at::IntArrayRef{-1, 1});
}

at::Tensor LoraLinear::narrowed(const at::Tensor& x) const { return at::linear(x, A); }
at::Tensor LoraLinear::spread(const at::Tensor& low) const { return at::linear(low, B); }

at::Tensor LoraLinear::low_rank(const at::Tensor& x) const {
  // PEFT scales what comes out; what comes between is narrower.
  auto added = spread(narrowed(x) * scaling_);
  return B_bias.defined() ? added + B_bias * scaling_ : added;
}

at::Tensor LoraLinear::without_taken(const at::Tensor& y, const at::Tensor& x) const {
  if (!taken_A_.defined()) return y;
  return y - at::linear(at::linear(x, taken_A_.to(x.scalar_type())), taken_B_.to(x.scalar_type()));
}

at::Tensor LoraLinear::dora(const at::Tensor& x, const at::Tensor& y) const {
  const auto factor = dora_factor().view({1, -1});
  const auto in = dropped(x);
  const bool drops = dropout_ > 0 && is_training();
  const auto base = drops ? at::linear(in, out_in(layer(), layer().weight).to(in.scalar_type()))
                          : (layer().bias.defined() ? y - layer().bias : y);
  // Of a changed base: the layer's own result without what was taken out, and the same of what it is scaled
  // by.
  return without_taken(y, x) + (factor - 1) * without_taken(base, in) + factor * low_rank(in);
}

}  // namespace graft::adapters
