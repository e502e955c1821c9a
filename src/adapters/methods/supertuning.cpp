#include "adapters/methods/supertuning.h"

#include <ATen/ATen.h>

#include "adapters/added_weight.h"
#include "adapters/sparse_rows.h"
#include "adapters/torch_init.h"
#include "graft/error.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

class SupertuningPart : public AddedWeight {
 public:
  explicit SupertuningPart(const PartBuild& build)
      : AddedWeight(build),
        out_(build.out_features()),
        in_(build.in_features()),
        dropout_(build.config.number("lora_dropout")) {
    const auto& config = build.config;
    if (build.layer.kind() != nn::LayerKind::linear)
      build.refuse("PEFT has Super-Tuning for torch.nn.Linear only");
    const auto count =
        static_cast<int64_t>(static_cast<double>(out_ * in_) * (1 - config.number("sparsity")));
    if (count < 1)
      build.refuse("a \"sparsity\" of " + std::to_string(config.number("sparsity")) + " leaves none of its " +
                   std::to_string(out_ * in_) + " entries to train");
    values_ = parameter(build, "supertuning_values", {count});
    const bool saved = config.boolean("save_precomputed_indices");
    if (saved) indices_ = parameter(build, "supertuning_indices", {count}, /*trainable=*/false, at::kInt);
    if (!saved || build.fresh()) {
      const auto largest = std::get<1>(build.layer.weight.detach().abs().flatten().topk(
          count, /*dim=*/0, /*largest=*/config.boolean("select_top")));
      if (saved)
        indices_.copy_(largest);
      else
        indices_ = constant("indices", largest.to(at::kInt));
    }
    if (config.has("r")) {
      const int64_t r = positive(config, "r");
      A_ = parameter(build, "supertuning_lora_A.weight", {r, in_});
      B_ = parameter(build, "supertuning_lora_B.weight", {out_, r});
      const auto alpha = config.has("lora_alpha") ? config.number("lora_alpha") : 2 * static_cast<double>(r);
      scaling_ = constant("scaling", at::scalar_tensor(alpha / static_cast<double>(r), build.options()));
    }
    if (build.fresh()) initialise(config.boolean("init_weights"));
    prepare(build);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto in = cast_to(gate.part(x), values_);
    auto made = sparse_linear(in, columns_, starts_, values_.index_select(0, order_));
    if (A_.defined())
      made = made + at::linear(at::linear(nn::dropout(in, dropout_, is_training()), A_), B_) * scaling_;
    return gate.add(next(x), made);
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto values = widened(values_);
    auto delta = at::zeros({out_ * in_}, values.options()).index_add(0, indices_, values).view({out_, in_});
    if (A_.defined()) delta = delta + at::matmul(widened(B_), widened(A_)) * scaling_;
    return delta;
  }

 private:
  void initialise(bool at_base) {
    const at::NoGradGuard no_grad;
    if (at_base)
      values_.zero_();
    else
      values_.copy_(at::randn(values_.sizes()));
    if (!A_.defined()) return;
    for (const auto& half : {A_, B_}) as_torch_layer(half);  // as they are constructed
    as_torch_layer(A_);
    if (at_base)
      B_.zero_();
    else
      as_torch_layer(B_);
  }

  /// PEFT has the entries in the order of their sizes; products want them row after row.
  void prepare(const PartBuild& build) {
    const auto wide = indices_.to(at::kLong);
    if (at::logical_or(wide.lt(0), wide.ge(out_ * in_)).any().item<bool>())
      throw FormatError("[adapters] \"" + build.key("supertuning_indices") +
                        "\" names entries that the weight does not have");
    const auto [sorted, order] = wide.sort();
    order_ = constant("order", order);
    columns_ = constant("columns", at::remainder(sorted, in_));
    starts_ = constant("starts", row_starts(at::floor_divide(sorted, in_), out_));
  }

  at::Tensor values_, indices_, A_, B_, scaling_;
  at::Tensor order_, columns_, starts_;
  int64_t out_, in_;
  double dropout_;
};

void check_supertuning(const AdapterConfig& config) {
  const auto sparsity = config.number("sparsity");
  if (!(sparsity >= 0 && sparsity < 1))
    throw ConfigError("[adapters] \"sparsity\" must be at least 0 and below 1, got " +
                      std::to_string(sparsity));
  if (config.has("r")) positive(config, "r");
  if (config.has("lora_alpha")) {
    config.number("lora_alpha");
    if (!config.has("r")) throw ConfigError("[adapters] \"lora_alpha\" has no effect without \"r\"");
  }
}

}  // namespace

Method supertuning_method() {
  return {.type = "SUPERTUNING",
          .fields = {{"sparsity", 0.99},
                     {"select_top", true},
                     {"r", nullptr, {}, Field::Rule::any},
                     {"lora_alpha", nullptr, {}, Field::Rule::any},
                     {"lora_dropout", 0.0},
                     {"init_weights", true},
                     {"save_precomputed_indices", true}},
          .lacks = {"exclude_modules", "layers_to_transform", "layers_pattern"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<SupertuningPart>(build);
          },
          .default_targets = usual_targets(),
          .check = check_supertuning,
          .data_fields = {"select_top", "lora_alpha", "init_weights"}};
}

}  // namespace graft::adapters
