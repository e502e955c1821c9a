// Generation over a growing cache: any model, nothing compiled.
#include "graft/generate.h"

#include <ATen/ATen.h>

#include "generation/loop.h"
#include "generation/model_call.h"

namespace graft {
namespace generation {
namespace {

class GrowingSteps : public Steps {
 public:
  explicit GrowingSteps(ModelCall forward) : forward_(std::move(forward)) {}

  at::Tensor start(const Prompt& prompt) override {
    mask_ = prompt.mask;
    return last_logits(forward_({.input_ids = prompt.ids,
                                 .attention_mask = mask_,
                                 .position_ids = prompt.positions,
                                 .past_key_values = cache_}));
  }

  at::Tensor next(const at::Tensor& tokens, const at::Tensor& positions) override {
    if (mask_.defined()) mask_ = at::cat({mask_, at::ones_like(tokens)}, 1);
    return last_logits(forward_({.input_ids = tokens,
                                 .attention_mask = mask_,
                                 .position_ids = positions,
                                 .past_key_values = cache_}));
  }

 private:
  ModelCall forward_;
  at::Tensor mask_;
  std::shared_ptr<GrowingCache> cache_ = std::make_shared<GrowingCache>();
};

}  // namespace
}  // namespace generation

at::Tensor generate(PreTrainedModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                    const GenerateCall& call) {
  generation::refuse_adapters(call);
  generation::GrowingSteps steps([&](const ModelInputs& inputs) { return model.forward(inputs); });
  return run(steps, generation::prepare(prompt, config, model), config, call);
}

at::Tensor generate(PeftModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                    const GenerateCall& call) {
  generation::GrowingSteps steps(
      [&](const ModelInputs& inputs) { return model.forward(inputs, {call.adapter_names}); });
  return run(steps, generation::prepare(prompt, config, *model.base_model()), config, call);
}

}  // namespace graft
