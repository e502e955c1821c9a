#include "adapters/methods/psoft.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "adapters/added_weight.h"
#include "adapters/methods/rotation.h"
#include "adapters/svd.h"
#include "graft/error.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

/// B (R - I) A, where B A is the part of the weight with the largest singular values. B and A are no part of
/// the file: they follow from the base's weight.
class PsoftPart : public AddedWeight {
 public:
  explicit PsoftPart(const PartBuild& build)
      : AddedWeight(build),
        r_(positive(build.config, "r")),
        orthogonal_(build.config.boolean("psoft_orth")),
        terms_(build.config.boolean("use_cayley_neumann") ? build.config.integer("num_cayley_neumann_terms")
                                                          : 0),
        limit_(build.config.has("cayley_neumann_eps") ? build.config.number("cayley_neumann_eps") : 0),
        bounded_(build.config.has("cayley_neumann_eps")),
        series_(build.config.boolean("use_cayley_neumann")),
        dropout_(build.config.number("psoft_dropout")) {
    const auto& config = build.config;
    if (build.layer.kind() != nn::LayerKind::linear) build.refuse("PEFT has PSOFT for torch.nn.Linear only");
    const int64_t in = build.in_features(), out = build.out_features();
    if (r_ > std::min(in, out))
      build.refuse("\"r\" is " + std::to_string(r_) + ", and its weight has only " +
                   std::to_string(std::min(in, out)) + " singular values");
    weight_ = orthogonal_ ? parameter(build, "psoft_R.weight", {r_ * (r_ - 1) / 2})
                          : parameter(build, "psoft_R.weight", {r_, r_});
    if (config.boolean("psoft_mag_b")) b_ = parameter(build, "psoft_R.vector_b", {r_});
    if (config.boolean("psoft_mag_a")) a_ = parameter(build, "psoft_R.vector_a", {r_});
    const auto places =
        at::triu_indices(r_, r_, 1, at::TensorOptions(at::kLong).device(build.layer.weight.device()));
    upper_ = constant("upper", places[0] * r_ + places[1]);
    scaling_ = config.number("psoft_alpha") / static_cast<double>(r_);
    halve(build);
    if (build.fresh()) initialise(config.boolean("init_weights"));
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto in = nn::dropout(widened(gate.part(x)), dropout_, is_training());
    const auto inner = at::linear(in, cast_to(A_, in));
    const auto turned = at::linear(inner, cast_to(R(), in)) - inner;
    return gate.add(next(x), at::linear(turned, cast_to(B_, in)) * scaling_);
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto r = widened(R());
    const auto change = r - at::eye(r_, r.options());
    return at::matmul(at::matmul(cast_to(B_, r), change), cast_to(A_, r)) * scaling_;
  }

 private:
  void halve(const PartBuild& build) {
    const at::NoGradGuard no_grad;
    const auto& config = build.config;
    const auto base = build.layer.weight.detach().to(at::kFloat);
    const auto [u, s, vh] = config.string("psoft_svd") == "full"
                                ? singular(base)
                                : largest_singular(base, r_, config.integer("psoft_svd_lowrank_niter"),
                                                   seeded(config.integer("random_seed")));
    const auto scaled = s.narrow(0, 0, r_) / scaling_;
    const auto right = vh.narrow(0, 0, r_), left = u.narrow(1, 0, r_);
    const bool even = config.string("ab_svd_init") == "pissa_init";
    A_ = constant("psoft_A", (even ? scaled.sqrt().unsqueeze(1) * right : right).contiguous());
    B_ = constant("psoft_B", left * (even ? scaled.sqrt() : scaled));
  }

  at::Tensor R() const {
    auto r = weight_;
    if (orthogonal_) {
      const auto upper =
          at::zeros({r_ * r_}, weight_.options()).index_copy(0, upper_, weight_).view({r_, r_});
      auto skew = upper - upper.t();
      if (series_ && bounded_) skew = within(skew);
      r = series_ ? cayley_series(skew, terms_) : cayley(-skew);
    }
    if (b_.defined()) r = b_.unsqueeze(1) * r;
    return a_.defined() ? r * a_ : r;
  }

  /// Scaled down where it is longer than the limit.
  at::Tensor within(const at::Tensor& skew) const {
    const auto norm = at::linalg_vector_norm(skew, 2);
    return at::where(at::logical_and(norm > limit_, at::isfinite(norm)), skew * (limit_ / (norm + 1e-12)),
                     skew);
  }

  void initialise(bool at_base) {
    const at::NoGradGuard no_grad;
    if (orthogonal_) {
      if (at_base)
        weight_.zero_();
      else
        weight_.normal_(0, 0.1);
    } else {
      weight_.copy_(at::eye(r_));
      if (!at_base) weight_.add_(at::randn(weight_.sizes()), 0.1);
    }
    for (const auto& vector : {a_, b_})
      if (vector.defined()) vector.fill_(1);
  }

  at::Tensor weight_, a_, b_, upper_, A_, B_;
  int64_t r_;
  bool orthogonal_;
  int64_t terms_;
  double limit_;
  bool bounded_, series_;
  double dropout_, scaling_ = 1;
};

void check_psoft(const AdapterConfig& config) {
  if (config.number("psoft_alpha") == 0)
    throw ConfigError("[adapters] \"psoft_alpha\" must not be 0: what it scales is divided by it before");
  if (config.has("cayley_neumann_eps")) config.number("cayley_neumann_eps");
}

}  // namespace

Method psoft_method() {
  return {.type = "PSOFT",
          .fields = {{"r", 32},
                     {"psoft_alpha", 32.0},
                     {"psoft_dropout", 0.0},
                     {"fan_in_fan_out", false},
                     {"ab_svd_init", "psoft_init", {"psoft_init", "pissa_init"}},
                     {"psoft_svd", "full", {"full", "lowrank"}},
                     {"psoft_svd_lowrank_niter", 10},
                     {"random_seed", 0},
                     {"psoft_orth", true},
                     {"psoft_mag_b", true},
                     {"psoft_mag_a", true},
                     {"use_cayley_neumann", false},
                     {"num_cayley_neumann_terms", 5},
                     {"cayley_neumann_eps", nullptr, {}, Field::Rule::any},
                     {"init_weights", true}},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<PsoftPart>(build);
          },
          .default_targets = usual_targets(),
          .check = check_psoft,
          .data_fields = {"init_weights"}};
}

}  // namespace graft::adapters
