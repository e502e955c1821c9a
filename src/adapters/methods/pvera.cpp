#include "adapters/methods/pvera.h"

#include <ATen/ATen.h>

#include "adapters/methods/vera_projections.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

class PveraPart : public AddedWeight {
 public:
  explicit PveraPart(const PartBuild& build)
      : AddedWeight(build),
        dropout_(build.config.number("pvera_dropout")),
        samples_(build.config.boolean("sample_at_inference")) {
    const auto& shared = dynamic_cast<const VeraProjections&>(*build.shared);
    A_ = constant("pvera_A", shared.A);
    B_ = constant("pvera_B", shared.B);
    in_ = build.in_features();
    out_ = build.out_features();
    b_ = parameter(build, "pvera_lambda_b", {out_});
    d_ = parameter(build, "pvera_lambda_d", {shared.A.size(0)});
    if (build.fresh()) initialise(build.config);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto in = nn::dropout(cast_to(gate.part(x), d_), dropout_, is_training());
    return gate.add(next(x), b_ * at::linear(hidden(in), cast_to(B_.narrow(0, 0, out_), d_)));
  }

 protected:
  /// With the means: a weight cannot be drawn anew for each input.
  at::Tensor delta_weight() const override {
    const int64_t r = rank();
    const auto left = widened(b_).unsqueeze(1) * widened(B_.narrow(0, 0, out_));
    return at::matmul(
        left, widened(d_.narrow(0, 0, r)).unsqueeze(1) * widened(A_.narrow(0, 0, r).narrow(1, 0, in_)));
  }

 private:
  int64_t rank() const { return A_.size(0) / 2; }

  /// The first half of A gives the means, the second the logarithms of the variances.
  at::Tensor hidden(const at::Tensor& x) const {
    const auto a = cast_to(A_.narrow(1, 0, in_), d_);
    const int64_t r = rank();
    if (!is_training() && !samples_) return d_.narrow(0, 0, r) * at::linear(x, a.narrow(0, 0, r));
    const auto both = d_ * at::linear(x, a);
    const auto deviation = at::exp(0.5 * both.narrow(-1, r, r));
    return both.narrow(-1, 0, r) + at::randn_like(deviation) * deviation;
  }

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
  bool samples_;
};

}  // namespace

Method pvera_method() {
  return {.type = "PVERA",
          .fields = {{"r", 256},
                     {"projection_prng_key", 0},
                     {"save_projection", true},
                     {"pvera_dropout", 0.0},
                     {"d_initial", 0.1},
                     {"fan_in_fan_out", false},
                     {"bias", "none", {"none", "all", "pvera_only"}},
                     {"init_weights", true},
                     {"sample_at_inference", false},
                     // A generator of each layer's own, whose state no program has.
                     {"generator_seed", nullptr, {}, Field::Rule::default_only}},
          .lacks = {"exclude_modules"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<PveraPart>(build);
          },
          .default_targets = usual_targets_but("dinov2", {"query", "value"}),
          .shared = [](const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers,
                       TensorSource& source) -> std::shared_ptr<Shared> {
            return std::make_shared<VeraProjections>("pvera_", 2, config, layers, source);
          },
          .draws =
              [](const AdapterConfig& config) {
                return config.boolean("sample_at_inference") ? Draws::always : Draws::in_training;
              },
          .data_fields = {"d_initial", "init_weights"}};
}

}  // namespace graft::adapters
