#include "adapters/methods/shira.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "adapters/added_weight.h"
#include "adapters/sparse_rows.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

class ShiraPart : public AddedWeight {
 public:
  explicit ShiraPart(const PartBuild& build)
      : AddedWeight(build), out_(build.out_features()), in_(build.in_features()) {
    if (build.layer.kind() != nn::LayerKind::linear) build.refuse("PEFT has SHiRA for torch.nn.Linear only");
    const int64_t r = positive(build.config, "r");
    if (r > in_ * out_ / (in_ + out_))
      build.refuse("\"r\" asks for " + std::to_string(r) + " times " + std::to_string(in_ + out_) +
                   " entries of its " + std::to_string(in_ * out_) + ": choose a smaller one");
    const int64_t count = r * (in_ + out_);
    weight_ = parameter(build, "shira_weight", {count});
    indices_ = parameter(build, "shira_indices", {2, count}, /*trainable=*/false, at::kInt);
    scaling_ = constant("scaling", at::ones({}, build.options()));
    if (build.fresh()) initialise(build.config);
    prepare(build);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    return gate.add(next(x),
                    sparse_linear(cast_to(gate.part(x), weight_), columns_, starts_, weight_ * scaling_));
  }

  bool scale(double factor) override {
    scaling_.mul_(factor);
    return true;
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto rows = indices_.select(0, 0).to(at::kLong), columns = indices_.select(0, 1).to(at::kLong);
    const auto values = widened(weight_ * scaling_);
    return at::zeros({out_ * in_}, values.options())
        .index_add(0, rows * in_ + columns, values)
        .view({out_, in_});
  }

 private:
  void initialise(const AdapterConfig& config) {
    if (config.string("mask_type") != "random")
      throw ConfigError("[adapters] \"mask_type\" is \"" + config.string("mask_type") +
                        "\": only \"random\" masks can be made here, others come with the adapter's file");
    const at::NoGradGuard no_grad;
    // Without a seed PEFT's generator has torch's default one: such masks are all alike, too.
    const auto generator =
        config.has("random_seed") ? seeded(config.integer("random_seed")) : at::detail::createCPUGenerator();
    const auto chosen = at::randperm(in_ * out_, generator).narrow(0, 0, weight_.size(0));
    const auto sorted = std::get<0>(chosen.sort());
    indices_.copy_(at::stack({at::floor_divide(sorted, in_), at::remainder(sorted, in_)}));
    if (config.boolean("init_weights"))
      weight_.zero_();
    else
      weight_.copy_(at::randn(weight_.sizes()));
  }

  /// The entries in the order of their rows, and where each row of the weight starts among them.
  void prepare(const PartBuild& build) {
    const auto rows = indices_.select(0, 0).to(at::kLong), columns = indices_.select(0, 1).to(at::kLong);
    const auto wrong = [](const at::Tensor& t) { return t.any().item<bool>(); };
    if (wrong(rows.lt(0)) || wrong(rows.ge(out_)) || wrong(columns.lt(0)) || wrong(columns.ge(in_)) ||
        wrong(rows.diff().lt(0)))
      throw FormatError("[adapters] \"" + build.key("shira_indices") +
                        "\" must name entries of the weight, row after row");
    columns_ = constant("columns", columns.contiguous());
    starts_ = constant("starts", row_starts(rows, out_));
  }

  at::Tensor weight_, indices_, scaling_;
  at::Tensor columns_, starts_;
  int64_t out_, in_;
};

}  // namespace

Method shira_method() {
  return {.type = "SHIRA",
          .fields = {{"r", 32},
                     {"mask_type", "random"},
                     {"random_seed", nullptr, {}, Field::Rule::any},
                     {"fan_in_fan_out", false},
                     {"init_weights", true}},
          .lacks = {"exclude_modules", "layers_to_transform", "layers_pattern"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<ShiraPart>(build);
          },
          .default_targets = usual_targets()};
}

}  // namespace graft::adapters
