#include "adapters/methods/monteclora.h"

#include <ATen/ATen.h>

#include "adapters/methods/lora_linear.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

/// A mean of `num_samples` noisy A's: how large the noise is in each of the rank's directions is drawn from a
/// Wishart distribution, how much each sample counts from (nearly) a Dirichlet distribution. Both are learnt.
class MonteCarloLora : public LoraLinear {
 public:
  explicit MonteCarloLora(const PartBuild& build) : LoraLinear(build) {
    const auto options = *object_of(build.config, "monteclora_config");
    samples_ = options["num_samples"];
    scale_ = options["sample_scaler"];
    const int64_t r = rank();
    const auto name = [](const char* tensor) { return std::string("lora_monteclora_sampler.") + tensor; };
    spread_of_it = parameter(build, name("std_prior"), {r});
    shares_prior = parameter(build, name("expert_weights_prior"), {samples_});
    // The last draws, which PEFT keeps for its loss.
    last_variance = parameter(build, name("gaussian_var_prior"), {r, r}, /*trainable=*/false);
    last_shares = parameter(build, name("expert_weights"), {samples_}, /*trainable=*/false);
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    spread_of_it.uniform_();
    shares_prior.uniform_();
    last_variance.copy_(at::eye(r));
    last_shares.fill_(1.0 / static_cast<double>(samples_));
  }

  Joint joint() const override { return is_training() ? nullptr : LoraLinear::joint(); }
  // Not as LoRA, whose start may have taken something out of the base.
  // NOLINTBEGIN(bugprone-parent-virtual-call)
  bool can_take(const Part& other) const override { return Part::can_take(other); }
  void take(const Part& other) override {
    Part::take(other);
    take_scaling(other);
  }
  // NOLINTEND(bugprone-parent-virtual-call)

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    if (!is_training()) return LoraLinear::forward(x, next, gate);
    const auto y = next(x);
    const auto part = dropped(cast_to(gate.part(x), A));
    auto delta = at::linear(at::linear(part, drawn(gate)), B);
    if (B_bias.defined()) delta = delta + B_bias;
    return gate.add(y, delta * scaling_);
  }

 private:
  /// [r, in]
  at::Tensor drawn(const Gate& gate) {
    constexpr double least = 1e-3;
    const int64_t r = rank();
    // Of the Wishart matrix the diagonal counts only: sums of r squares each.
    const auto squares = at::randn({r, r}, A.options()).square().sum(1);
    const auto variance = (at::exp(spread_of_it).square() * squares).clamp_min(least);
    const auto noise = at::randn({samples_, A.size(1), r}, A.options()) * at::sqrt(variance) * scale_;
    const auto shares = drawn_shares();
    keep(last_variance, at::diag(variance), gate);
    keep(last_shares, shares, gate);
    return at::einsum("n,nij->ij", {shares, A.t() + noise}).t();
  }

  at::Tensor drawn_shares() const {
    constexpr double least = 1e-6;
    const auto alpha = at::exp(shares_prior).clamp_min(least), log = at::log(alpha),
               inverse = alpha.reciprocal();
    const auto n = static_cast<double>(samples_);
    const auto variance = (inverse * (1 - 2 / n) + inverse.sum() / (n * n)).clamp_min(least) + least;
    const auto z = at::randn({samples_}, shares_prior.options());
    return at::softmax(at::sqrt(variance) * z + (log - log.mean()), -1);
  }

  static void keep(const at::Tensor& place, const at::Tensor& value, const Gate& gate) {
    const at::NoGradGuard no_grad;
    place.copy_(gate.if_any(value.detach(), place));
  }

  int64_t samples_ = 1;
  double scale_ = 0;
  at::Tensor spread_of_it, shares_prior, last_variance, last_shares;
};

}  // namespace

Field monteclora_field() {
  return object_field("monteclora_config", {{"num_samples", 8},
                                            {"use_entropy", false},
                                            {"dirichlet_prior", 0.1},
                                            {"sample_scaler", 1e-4},
                                            {"kl_loss_weight", 1e-5},
                                            {"buffer_size", 150}});
}

void check_monteclora(const AdapterConfig& config) {
  const auto options = object_of(config, "monteclora_config");
  if (!options) return;
  for (const char* field : {"num_samples", "dirichlet_prior", "buffer_size"})
    if (!((*options)[field] > 0))
      throw ConfigError("[lora] \"monteclora_config\": \"" + std::string(field) + "\" must be above 0");
}

std::shared_ptr<Part> monteclora_part(const PartBuild& build) {
  return std::make_shared<MonteCarloLora>(build);
}

}  // namespace graft::adapters
