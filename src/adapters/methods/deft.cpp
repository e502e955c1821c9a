#include "adapters/methods/deft.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "adapters/added_weight.h"
#include "graft/error.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

/// (I - Q K^T) W + Q R, that is W + Q (R - K^T W): of rank r, never a matrix of [out, out].
class DeftPart : public AddedWeight {
 public:
  explicit DeftPart(const PartBuild& build)
      : AddedWeight(build),
        orthogonal_(build.config.string("decomposition_method") == "qr"),
        dropout_(build.config.number("deft_dropout")) {
    // A projection has no more directions than the layer has outputs.
    const int64_t r = std::min(positive(build.config, "r"), build.out_features());
    P_ = parameter(build, "deft_P", {build.out_features(), r});
    if (!build.config.boolean("para")) R_ = parameter(build, "deft_R", {r, build.in_features()});
    const double alpha = build.config.has("alpha") ? build.config.number("alpha") : 0;
    scaling_ = constant("scaling",
                        at::scalar_tensor(alpha != 0 ? alpha / static_cast<double>(r) : 1, build.options()));
    if (build.fresh()) initialise(build.config);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto in = widened(gate.part(x));
    const auto to = projection();
    auto made = -at::linear(in, taken_out(to));
    if (R_.defined())
      made = made + at::linear(nn::dropout(in, dropout_, is_training()), widened(R_) * scaling_);
    return gate.add(next(x), at::linear(made, to.q));
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto to = projection();
    auto middle = -taken_out(to);
    if (R_.defined()) middle = middle + widened(R_) * scaling_;
    return at::matmul(to.q, middle);
  }

 private:
  struct Projection {
    at::Tensor q, k;  // [out, r]
  };

  Projection projection() const {
    // LAPACK knows no half precision, and PEFT projects in float32 in any case.
    const auto p = widened(P_);
    if (!orthogonal_) return {p, at::relu(p)};
    const auto q = std::get<0>(at::linalg_qr(p));
    return {q, q};
  }

  /// K^T W, [r, in]
  at::Tensor taken_out(const Projection& to) const {
    return at::matmul(to.k.t(), out_in(layer(), widened(layer().weight)));
  }

  void initialise(const AdapterConfig& config) {
    const at::NoGradGuard no_grad;
    P_.normal_(0, 0.02);
    if (!R_.defined()) return;
    if (config.boolean("init_weights"))
      R_.copy_(taken_out(projection()) / scaling_);  // what is put in is what is taken out
    else
      R_.normal_(0, 0.02 * config.number("init_scale"));
  }

  at::Tensor P_, R_, scaling_;
  bool orthogonal_;
  double dropout_;
};

void check_deft(const AdapterConfig& config) {
  if (config.has("alpha")) config.number("alpha");
}

}  // namespace

Method deft_method() {
  return {.type = "DEFT",
          .fields = {{"r", 8},
                     {"decomposition_method", "relu", {"relu", "qr"}},
                     {"init_scale", 1.0},
                     {"alpha", nullptr, {}, Field::Rule::any},
                     {"para", false},
                     {"fan_in_fan_out", false},
                     {"deft_dropout", 0.0},
                     {"init_weights", true},
                     {"bias", "none", {"none", "all", "deft_only"}}},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<DeftPart>(build);
          },
          .default_targets = usual_targets(),
          .check = check_deft,
          .data_fields = {"init_scale", "alpha", "init_weights"}};
}

}  // namespace graft::adapters
