#include "adapters/methods/beft.h"

#include <ATen/ATen.h>

#include "graft/error.h"

namespace graft::adapters {
namespace {

class BeftPart : public Part {
 public:
  explicit BeftPart(const PartBuild& build) : Part(build) {
    if (build.layer.kind() != nn::LayerKind::linear) build.refuse("PEFT has BEFT for torch.nn.Linear only");
    bias_ = parameter(build, "beft_bias", {1, build.out_features()});
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    bias_.copy_(at::randn(bias_.sizes()));  // drawn in any case: the draws after it are PEFT's
    if (build.config.boolean("init_weights")) bias_.zero_();
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    return gate.add(next(x), bias_.view(-1));
  }

  void merge(Weights& weights) const override {
    if (!weights.bias.defined())
      throw UsageError("[adapters] BEFT on \"" + layer().path() +
                       "\" cannot be merged: the layer has no bias that could take it");
    weights.bias = (weights.bias + bias_.view(-1)).to(weights.bias.scalar_type());
  }

 private:
  at::Tensor bias_;
};

}  // namespace

Method beft_method() {
  return {.type = "BEFT",
          .fields = {{"init_weights", true}},
          .lacks = {"exclude_modules", "layers_to_transform", "layers_pattern"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<BeftPart>(build);
          },
          .default_targets = {{"llama", {"v_proj"}},
                              {"mistral", {"v_proj"}},
                              {"qwen2", {"v_proj"}},
                              {"qwen3", {"v_proj"}},
                              {"gemma", {"v_proj"}},
                              {"gemma2", {"v_proj"}},
                              {"opt", {"v_proj"}},
                              {"bert", {"value"}},
                              {"roberta", {"value"}},
                              {"t5", {"v"}}},
          .data_fields = {"init_weights"}};
}

}  // namespace graft::adapters
