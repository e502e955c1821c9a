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

/// The encoder reads the prompt once: after the first step the cache holds what the decoder needs of it.
class EncoderDecoderSteps : public Steps {
 public:
  explicit EncoderDecoderSteps(ModelCall forward) : forward_(std::move(forward)) {}

  at::Tensor start(const Prompt& prompt) override {
    mask_ = prompt.source_mask;
    return last_logits(forward_({.input_ids = prompt.source_ids,
                                 .attention_mask = mask_,
                                 .decoder_input_ids = prompt.ids,
                                 .past_key_values = cache_}));
  }

  at::Tensor next(const at::Tensor& tokens, const at::Tensor& /*positions*/) override {
    return last_logits(
        forward_({.attention_mask = mask_, .decoder_input_ids = tokens, .past_key_values = cache_}));
  }

 private:
  ModelCall forward_;
  at::Tensor mask_;
  std::shared_ptr<EncoderDecoderCache> cache_ = std::make_shared<EncoderDecoderCache>();
};

at::Tensor go_on(const ModelCall& forward, const PreTrainedModel& model, const ModelInputs& given,
                 const GenerationConfig& config, const GenerateCall& call) {
  const auto prompt = prepare(given, config, model);
  if (!is_encoder_decoder(model)) {
    GrowingSteps steps(forward);
    return generation::run(steps, prompt, config, call);
  }
  EncoderDecoderSteps steps(forward);
  return generation::run(steps, prompt, config, call);
}

}  // namespace
}  // namespace generation

at::Tensor generate(PreTrainedModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                    const GenerateCall& call) {
  generation::refuse_adapters(call);
  return generation::go_on([&](const ModelInputs& inputs) { return model.forward(inputs); }, model, prompt,
                           config, call);
}

at::Tensor generate(PeftModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                    const GenerateCall& call) {
  return generation::go_on(
      [&](const ModelInputs& inputs) { return model.forward(inputs, {call.adapter_names}); },
      *model.base_model(), prompt, config, call);
}

}  // namespace graft
