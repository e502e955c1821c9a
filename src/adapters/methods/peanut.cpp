#include "adapters/methods/peanut.h"

#include <ATen/ATen.h>

#include "adapters/added_weight.h"
#include "adapters/torch_init.h"
#include "graft/error.h"
#include "nn/activation.h"

namespace graft::adapters {
namespace {

class PeanutPart : public AddedWeight {
 public:
  explicit PeanutPart(const PartBuild& build)
      : AddedWeight(build), activation_(nn::activation(build.config.string("act_fn"), "act_fn")) {
    if (build.layer.kind() != nn::LayerKind::linear) build.refuse("PEFT has PEANuT for torch.nn.Linear only");
    const int64_t r = positive(build.config, "r"), out = build.out_features();
    const int64_t depth = build.config.integer("depth");
    A_ = parameter(build, "peanut_A.weight", {r, out});
    for (auto* stack : {&encoders_, &decoders_})
      for (int64_t i = 0; i < depth; ++i) {
        const std::string name = stack == &encoders_ ? "peanut_encoders." : "peanut_decoders.";
        stack->push_back(parameter(build, name + std::to_string(i) + ".weight", {r, r}));
      }
    B_ = parameter(build, "peanut_B.weight", {out, r});
    scaling_ = constant("scaling", at::scalar_tensor(build.config.number("scaling"), build.options()));
    if (build.fresh()) initialise(build.config.boolean("init_weights"));
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto answer = hidden();
    return gate.add(next(x), at::linear(at::matmul(widened(gate.part(x)), answer), widened(B_)) * scaling_);
  }

  bool scale(double factor) override {
    scaling_.mul_(factor);
    return true;
  }

 protected:
  at::Tensor delta_weight() const override { return at::matmul(widened(B_), hidden().t()) * scaling_; }

 private:
  /// What the network makes of the weight, but for its last layer: [in, r], so that the change has rank r.
  at::Tensor hidden() const {
    auto h = activation_(at::matmul(widened(layer().weight).t(), widened(A_).t()));
    std::vector<at::Tensor> before;
    for (const auto& encoder : encoders_) {
      before.push_back(h);
      h = activation_(at::linear(h, widened(encoder)));
    }
    for (const auto& decoder : decoders_) {
      h = activation_(at::linear(h, widened(decoder))) + before.back();
      before.pop_back();
    }
    return h;
  }

  void initialise(bool at_base) {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> all{A_};
    for (const auto* stack : {&encoders_, &decoders_}) all.insert(all.end(), stack->begin(), stack->end());
    for (const auto& weight : all) as_torch_layer(weight);  // as they are constructed
    as_torch_layer(B_);
    for (const auto& weight : all) as_torch_layer(weight);
    if (at_base)
      B_.zero_();
    else
      as_torch_layer(B_);
  }

  nn::Activation activation_;
  at::Tensor A_, B_, scaling_;
  std::vector<at::Tensor> encoders_, decoders_;
};

void check_peanut(const AdapterConfig& config) {
  nn::activation(config.string("act_fn"), "act_fn");
  if (config.integer("depth") < 0)
    throw ConfigError("[adapters] \"depth\" must be at least 0, got " +
                      std::to_string(config.integer("depth")));
  check_fits_memory("peanut_encoders", {config.integer("depth"), positive(config, "r"), config.integer("r")});
}

}  // namespace

Method peanut_method() {
  return {.type = "PEANUT",
          .fields = {{"r", 32}, {"depth", 0}, {"act_fn", "relu"}, {"scaling", 1.0}, {"init_weights", true}},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<PeanutPart>(build);
          },
          .default_targets = usual_targets(),
          .check = check_peanut,
          .data_fields = {"scaling", "init_weights"}};
}

}  // namespace graft::adapters
