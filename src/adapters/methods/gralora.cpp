#include "adapters/methods/gralora.h"

#include <ATen/ATen.h>

#include "adapters/added_weight.h"
#include "adapters/torch_init.h"
#include "graft/error.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

/// The weight is a grid of k times k blocks. A block of the input has one A, a block of the output one B, and
/// each pair of them r / k of their ranks.
class GraloraPart : public AddedWeight {
 public:
  explicit GraloraPart(const PartBuild& build)
      : AddedWeight(build),
        k_(build.config.integer("gralora_k")),
        r_(positive(build.config, "r")),
        hybrid_(build.config.integer("hybrid_r")),
        dropout_(build.config.number("gralora_dropout")) {
    const int64_t in = build.in_features(), out = build.out_features();
    if (in % k_ != 0 || out % k_ != 0)
      build.refuse("\"gralora_k\" is " + std::to_string(k_) + ", and must divide " + std::to_string(in) +
                   " and " + std::to_string(out) + " here");
    A_ = parameter(build, "gralora_A", {k_, in / k_, r_});
    B_ = parameter(build, "gralora_B", {k_, r_, out / k_});
    if (hybrid_ > 0) {
      general_A_ = parameter(build, "gralora_A_general.weight", {hybrid_, in});
      general_B_ = parameter(build, "gralora_B_general.weight", {out, hybrid_});
    }
    scaling_ = constant(
        "scaling",
        at::scalar_tensor(build.config.number("alpha") / static_cast<double>(r_ + hybrid_), build.options()));
    if (build.fresh()) initialise(build.config.boolean("init_weights"));
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto in = cast_to(gate.part(x), A_);
    // PEFT drops out twice where there are two ways through.
    auto made = blocks(nn::dropout(in, dropout_, is_training()));
    if (hybrid_ > 0) {
      const auto other = nn::dropout(in, dropout_, is_training());
      made = made + at::linear(at::linear(other, general_A_), general_B_);
    }
    return gate.add(next(x), made * scaling_);
  }

  bool scale(double factor) override {
    scaling_.mul_(factor);
    return true;
  }

 protected:
  at::Tensor delta_weight() const override {
    const int64_t share = r_ / k_;
    const auto a = widened(A_).view({k_, -1, k_, share}), b = widened(B_).view({k_, k_, share, -1});
    auto delta = at::einsum("nijs,jnso->joni", {a, b}).reshape({B_.size(2) * k_, A_.size(1) * k_});
    if (hybrid_ > 0) delta = delta + at::matmul(widened(general_B_), widened(general_A_));
    return delta * scaling_;
  }

 private:
  at::Tensor blocks(const at::Tensor& x) const {
    const int64_t share = r_ / k_;
    const auto hidden = at::bmm(x.reshape({-1, k_, A_.size(1)}).transpose(0, 1), A_);  // [k, rows, r]
    // What the blocks of the output take from those of the input.
    const auto dealt = hidden.view({k_, -1, k_, share}).permute({2, 1, 0, 3}).reshape({k_, -1, r_});
    auto sizes = x.sizes().vec();
    sizes.back() = k_ * B_.size(2);
    return at::bmm(dealt, B_).transpose(0, 1).reshape(sizes);
  }

  void initialise(bool at_base) {
    const at::NoGradGuard no_grad;
    // PEFT draws each block as a layer of its own, the other way round.
    for (int64_t i = 0; i < k_; ++i) {
      const auto a = at::empty({r_, A_.size(1)}), b = at::zeros({B_.size(2), r_});
      as_torch_layer(a);
      if (!at_base) as_torch_layer(b);
      A_[i].copy_(a.t());
      B_[i].copy_(b.t());
    }
    if (hybrid_ == 0) return;
    for (const auto& general : {general_A_, general_B_}) as_torch_layer(general);  // as they are constructed
    as_torch_layer(general_A_);
    if (at_base)
      general_B_.zero_();
    else
      as_torch_layer(general_B_);
  }

  at::Tensor A_, B_, general_A_, general_B_, scaling_;
  int64_t k_, r_, hybrid_;
  double dropout_;
};

void check_gralora(const AdapterConfig& config) {
  const auto r = positive(config, "r"), k = positive(config, "gralora_k");
  if (r % k != 0)
    throw ConfigError("[adapters] \"r\" is " + std::to_string(r) + ", and \"gralora_k\", " +
                      std::to_string(k) + ", must divide it");
  if (config.integer("hybrid_r") < 0)
    throw ConfigError("[adapters] \"hybrid_r\" must be at least 0, got " +
                      std::to_string(config.integer("hybrid_r")));
}

}  // namespace

Method gralora_method() {
  return {.type = "GRALORA",
          .fields = {{"r", 32},
                     {"hybrid_r", 0},
                     {"alpha", 64.0},
                     {"gralora_dropout", 0.0},
                     {"gralora_k", 2},
                     {"fan_in_fan_out", false},
                     {"bias", "none", {"none", "all", "gralora_only"}},
                     {"init_weights", true}},
          .lacks = {"exclude_modules"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<GraloraPart>(build);
          },
          .default_targets = usual_targets(),
          .check = check_gralora,
          .data_fields = {"alpha", "init_weights"}};
}

}  // namespace graft::adapters
