#include "adapters/methods/poly.h"

#include <ATen/ATen.h>

#include "adapters/added_weight.h"
#include "adapters/torch_init.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

/// y += B A x / r, with A and B of each row mixed from the skills' by the row's task. With several splits the
/// features are in as many groups, each of which mixes for itself.
class PolyPart : public Part {
 public:
  explicit PolyPart(const PartBuild& build)
      : Part(build),
        rank_(positive(build.config, "r")),
        splits_(positive(build.config, "n_splits")),
        in_(build.in_features()),
        out_(build.out_features()) {
    if (build.layer.kind() != nn::LayerKind::linear) build.refuse("it is for linear layers");
    const int64_t skills = positive(build.config, "n_skills"), tasks = positive(build.config, "n_tasks");
    if (in_ % splits_ != 0 || out_ % splits_ != 0)
      build.refuse("its " + std::to_string(in_) + " inputs and " + std::to_string(out_) +
                   " outputs cannot be divided into " + std::to_string(splits_) + " splits");
    A = parameter(build, "poly_lora_A", {splits_, skills, in_ / splits_, rank_});
    B = parameter(build, "poly_lora_B", {splits_, skills, rank_, out_ / splits_});
    router = parameter(build, "poly_router.module_logits", {tasks, splits_ * skills});
    if (build.fresh()) initialise(build.config.boolean("init_weights"));
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    auto y = next(x);
    if (!gate.tasks().defined()) throw UsageError("[poly] POLY needs task_ids: the task of each row");
    if (x.dim() != 3) throw UsageError("[poly] POLY takes rows of tokens, [batch, seq, features]");
    const auto part = cast_to(gate.part(x), A);
    const auto mix = mixing(gate.part(gate.tasks()));
    const auto rows = part.size(0);
    const auto a = mixed(mix, A).reshape({rows, in_, rank_});
    const auto b = mixed(mix, B).transpose(1, 2).reshape({rows, rank_, out_});
    return gate.add(y, at::bmm(at::bmm(part, a), b) / rank_);
  }

  void merge(Weights& /*weights*/) const override {
    throw UsageError(
        "[poly] POLY mixes its adapters by the task of each row and cannot be merged into the weights: keep "
        "it as "
        "an adapter");
  }

 private:
  /// [rows, splits, skills]; in training drawn around what was learnt (a relaxed Bernoulli distribution).
  at::Tensor mixing(const at::Tensor& tasks) const {
    constexpr double least = 1e-12;
    auto logits = router.index_select(0, tasks.to(router.device())).view({tasks.size(0), splits_, -1});
    if (is_training()) {
      const auto eps = std::numeric_limits<float>::epsilon();
      const auto u = at::rand(logits.sizes(), logits.options()).clamp(eps, 1 - eps);
      logits = logits + at::log(u) - at::log1p(-u);
    }
    const auto shares = at::sigmoid(logits);
    return shares / (shares.sum(-1, /*keepdim=*/true) + least);
  }

  /// Each row's own matrices, [rows, splits, ...] from [splits, skills, ...].
  static at::Tensor mixed(const at::Tensor& mix, const at::Tensor& skills) {
    const auto flat = skills.flatten(2);
    return at::matmul(mix.transpose(0, 1), flat).transpose(0, 1).unflatten(2, skills.sizes().slice(2));
  }

  void initialise(bool zero) {
    const at::NoGradGuard no_grad;
    const auto draw = [&](const at::Tensor& all) {
      for (int64_t skill = 0; skill < all.size(1); ++skill)
        for (int64_t split = 0; split < splits_; ++split) {
          auto own = all.select(0, split).select(0, skill);
          const auto turned = at::empty({own.size(1), own.size(0)}, own.options());
          as_torch_layer(turned);
          own.copy_(turned.t());
        }
    };
    draw(A);
    if (zero)
      B.zero_();
    else
      draw(B);
    router.uniform_(-1e-3, 1e-3);
  }

  int64_t rank_, splits_, in_, out_;
  at::Tensor A, B, router;
};

}  // namespace

Method poly_method() {
  return {.type = "POLY",
          .fields = {{"r", 8},
                     {"init_weights", true},
                     {"poly_type", "poly", {"poly"}},
                     {"n_tasks", 1},
                     {"n_skills", 4},
                     {"n_splits", 1}},
          .lacks = {"layers_to_transform", "layers_pattern"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<PolyPart>(build);
          },
          .default_targets = usual_targets(),
          .draws = [](const AdapterConfig&) { return Draws::in_training; },
          .takes_tasks = true,
          .data_fields = {"init_weights", "n_tasks"}};
}

}  // namespace graft::adapters
