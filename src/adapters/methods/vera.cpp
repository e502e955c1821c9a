#include "adapters/methods/vera.h"

#include <ATen/ATen.h>

#include "adapters/methods/vera_projections.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

class VeraPart : public AddedWeight {
 public:
  explicit VeraPart(const PartBuild& build)
      : AddedWeight(build), dropout_(build.config.number("vera_dropout")) {
    const auto& shared = dynamic_cast<const VeraProjections&>(*build.shared);
    A_ = constant("vera_A", shared.A);
    B_ = constant("vera_B", shared.B);
    in_ = build.in_features();
    out_ = build.out_features();
    b_ = parameter(build, "vera_lambda_b", {out_});
    d_ = parameter(build, "vera_lambda_d", {shared.A.size(0)});
    if (build.fresh()) initialise(build.config);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto in = nn::dropout(cast_to(gate.part(x), d_), dropout_, is_training());
    const auto hidden = d_ * at::linear(in, cast_to(A_.narrow(1, 0, in_), d_));
    return gate.add(next(x), b_ * at::linear(hidden, cast_to(B_.narrow(0, 0, out_), d_)));
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto left = widened(b_).unsqueeze(1) * widened(B_.narrow(0, 0, out_));
    return at::matmul(left, widened(d_).unsqueeze(1) * widened(A_.narrow(1, 0, in_)));
  }

 private:
  void initialise(const AdapterConfig& config) {
    const at::NoGradGuard no_grad;
    d_.copy_(at::randn(d_.sizes()));  // drawn in any case: the draws after it are PEFT's
    if (config.boolean("init_weights")) {
      d_.fill_(config.number("d_initial"));
      b_.zero_();
    } else {
      b_.fill_(1);
    }
  }

  at::Tensor A_, B_, b_, d_;
  int64_t in_ = 0, out_ = 0;
  double dropout_;
};

}  // namespace

Method vera_method() {
  return {.type = "VERA",
          .fields = {{"r", 256},
                     {"projection_prng_key", 0},
                     {"save_projection", true},
                     {"vera_dropout", 0.0},
                     {"d_initial", 0.1},
                     {"fan_in_fan_out", false},
                     {"bias", "none", {"none", "all", "vera_only"}},
                     {"init_weights", true}},
          .lacks = {"exclude_modules"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<VeraPart>(build);
          },
          .default_targets = usual_targets(),
          .shared = [](const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers,
                       TensorSource& source) -> std::shared_ptr<Shared> {
            return std::make_shared<VeraProjections>("vera_", 1, config, layers, source);
          }};
}

}  // namespace graft::adapters
