#include "adapters/methods/loha.h"

#include <ATen/ATen.h>

#include "adapters/methods/lycoris.h"
#include "adapters/torch_init.h"

namespace graft::adapters {
namespace {

/// The change of the weight has no form cheaper than itself: it is built for every call.
class Loha : public LycorisPart {
 public:
  explicit Loha(const PartBuild& build) : LycorisPart(build, /*scales_rank_dropout=*/true) {
    const auto& weight = build.layer.weight;
    const int64_t out = weight.size(0);
    const bool cp = has_cp_kernel(build);
    const auto half = [&](const std::string& number) {
      const std::string name = "hada_w" + number;
      if (!cp)
        return Half{{},
                    parameter(build, name + "_a", {out, r_}),
                    parameter(build, name + "_b", {r_, weight.numel() / out})};
      return Half{parameter(build, "hada_t" + number, {r_, r_, weight.size(2), weight.size(3)}),
                  parameter(build, name + "_a", {r_, out}),
                  parameter(build, name + "_b", {r_, weight.size(1)})};
    };
    one_ = half("1");
    two_ = half("2");
    if (build.fresh()) initialise(build.config.boolean("init_weights"));
  }

 protected:
  at::Tensor delta_weight() const override {
    return (one_.matrix() * two_.matrix()).reshape(layer().weight.sizes());
  }
  at::ScalarType dtype() const override { return one_.a.scalar_type(); }

 private:
  struct Half {
    at::Tensor core, a, b;  ///< the core only in CP form
    at::Tensor matrix() const { return core.defined() ? cp_kernel(core, a, b) : at::mm(a, b); }
  };

  /// In the order of PEFT's draws.
  void initialise(bool start_from_zero) const {
    const at::NoGradGuard no_grad;
    for (const auto& tensor : {one_.a, one_.b, two_.a}) as_torch_layer(tensor);
    if (start_from_zero)
      two_.b.zero_();
    else
      as_torch_layer(two_.b);
    for (const auto& tensor : {one_.core, two_.core})
      if (tensor.defined()) as_torch_layer(tensor);
  }

  Half one_, two_;
};

std::shared_ptr<Part> loha_part(const PartBuild& build) {
  check_lycoris_layer(build);
  return std::make_shared<Loha>(build);
}

}  // namespace

Method loha_method() {
  return {.type = "LOHA",
          .fields = {{"r", 8},
                     {"alpha", 8.0},
                     {"rank_dropout", 0.0},
                     {"module_dropout", 0.0},
                     {"use_effective_conv2d", false},
                     {"init_weights", true},
                     {"rank_pattern", nlohmann::json::object()},
                     {"alpha_pattern", nlohmann::json::object()}},
          .part = loha_part,
          .default_targets = usual_targets()};
}

}  // namespace graft::adapters
