#include "adapters/methods/delora.h"

#include <ATen/ATen.h>

#include "adapters/added_weight.h"
#include "adapters/torch_init.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

class DeloraPart : public AddedWeight {
 public:
  explicit DeloraPart(const PartBuild& build)
      : AddedWeight(build),
        r_(static_cast<int64_t>(
            build.by_pattern("rank_pattern", static_cast<double>(positive(build.config, "r"))))),
        dropout_(build.config.number("module_dropout")) {
    if (build.layer.kind() != nn::LayerKind::linear) build.refuse("PEFT has DeLoRA for torch.nn.Linear only");
    if (r_ <= 0) build.refuse("\"rank_pattern\" gives it the rank " + std::to_string(r_));
    A_ = parameter(build, "delora_A", {r_, build.in_features()});
    B_ = parameter(build, "delora_B", {build.out_features(), r_});
    lambda_ = parameter(build, "delora_lambda", {1});
    // Of the weight as it was when the adapter was made: the file has it, whatever base comes with it.
    norm_ = parameter(build, "delora_w_norm", {build.in_features()}, /*trainable=*/false);
    if (build.fresh()) initialise(build);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto in = nn::dropout(cast_to(gate.part(x), A_), dropout_, is_training());
    return gate.add(next(x), at::linear(at::linear(in * norm_, A_) * strengths(A_, B_, lambda_), B_));
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto a = widened(A_), b = widened(B_);
    return at::matmul(b * strengths(a, b, widened(lambda_)), a) * widened(norm_);
  }

 private:
  /// lambda / r over the lengths of the rows of A and the columns of B: each of the r directions is as strong
  /// as the others.
  at::Tensor strengths(const at::Tensor& a, const at::Tensor& b, const at::Tensor& lambda) const {
    constexpr double least = 1e-4;  // B starts at zero
    const auto rows = at::linalg_vector_norm(a, 2, at::IntArrayRef{1}).clamp_min(least);
    const auto columns = at::linalg_vector_norm(b, 2, at::IntArrayRef{0}).clamp_min(least);
    return lambda / static_cast<double>(r_) / (rows * columns);
  }

  void initialise(const PartBuild& build) {
    const at::NoGradGuard no_grad;
    as_torch_layer(A_);
    if (build.config.boolean("init_weights"))
      B_.zero_();
    else
      as_torch_layer(B_);
    lambda_.fill_(build.by_pattern("lambda_pattern", build.config.number("delora_lambda")));
    norm_.copy_(at::linalg_vector_norm(build.layer.weight, 2, at::IntArrayRef{0}));
  }

  at::Tensor A_, B_, lambda_, norm_;
  int64_t r_;
  double dropout_;
};

}  // namespace

Method delora_method() {
  return {.type = "DELORA",
          .fields = {{"r", 8},
                     {"delora_lambda", 15},
                     {"module_dropout", 0.0},
                     {"bias", "none", {"none", "all", "delora_only"}},
                     {"init_weights", true},
                     {"rank_pattern", nlohmann::json::object()},
                     {"lambda_pattern", nlohmann::json::object()}},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<DeloraPart>(build);
          },
          .default_targets = usual_targets(),
          .data_fields = {"delora_lambda", "lambda_pattern", "init_weights"}};
}

}  // namespace graft::adapters
