// Generation over a growing cache: any model, nothing compiled.
#include "graft/generate.h"

#include <ATen/ATen.h>

#include "generation/assisted.h"
#include "generation/draft.h"
#include "generation/model_call.h"

namespace graft {
namespace generation {
namespace {

class GrowingSteps : public Steps {
 public:
  explicit GrowingSteps(ModelCall forward) : forward_(std::move(forward)) {}

  at::Tensor start(const Prompt& prompt) override {
    mask_ = prompt.mask;
    rows_ = prompt.rows;
    return last_logits(forward(prompt.ids, prompt.positions));
  }

  at::Tensor next(const at::Tensor& tokens, const at::Tensor& positions) override {
    return last_logits(go_on(tokens, positions));
  }

  at::Tensor several(const at::Tensor& tokens, const at::Tensor& positions) override {
    return all_logits(go_on(tokens, positions));
  }

  void forget(int64_t tokens) override {
    cache_->drop_last(tokens);
    if (mask_.defined()) mask_ = mask_.slice(1, 0, mask_.size(1) - tokens);
  }

 private:
  ModelOutput forward(const at::Tensor& tokens, const at::Tensor& positions) {
    ModelInputs inputs{
        .input_ids = tokens, .attention_mask = mask_, .position_ids = positions, .past_key_values = cache_};
    rows_.put_into(inputs);
    return forward_(inputs);
  }

  ModelOutput go_on(const at::Tensor& tokens, const at::Tensor& positions) {
    if (mask_.defined()) mask_ = at::cat({mask_, at::ones_like(tokens)}, 1);
    return forward(tokens, positions);
  }

  ModelCall forward_;
  at::Tensor mask_;
  Rows rows_;
  std::shared_ptr<GrowingCache> cache_ = std::make_shared<GrowingCache>();
};

/// The encoder reads the prompt once: after the first step the cache holds what the decoder needs of it.
class EncoderDecoderSteps : public Steps {
 public:
  explicit EncoderDecoderSteps(ModelCall forward) : forward_(std::move(forward)) {}

  at::Tensor start(const Prompt& prompt) override {
    mask_ = prompt.source_mask;
    rows_ = prompt.rows;
    return last_logits(forward_({.input_ids = prompt.source_ids,
                                 .attention_mask = mask_,
                                 .decoder_input_ids = prompt.ids,
                                 .past_key_values = cache_,
                                 .task_ids = rows_.task_ids}));
  }

  at::Tensor next(const at::Tensor& tokens, const at::Tensor& /*positions*/) override {
    return last_logits(go_on(tokens));
  }

  at::Tensor several(const at::Tensor& tokens, const at::Tensor& /*positions*/) override {
    return all_logits(go_on(tokens));
  }

  void forget(int64_t tokens) override { cache_->drop_last(tokens); }

 private:
  ModelOutput go_on(const at::Tensor& tokens) {
    return forward_({.attention_mask = mask_,
                     .decoder_input_ids = tokens,
                     .past_key_values = cache_,
                     .task_ids = rows_.task_ids});
  }

  ModelCall forward_;
  at::Tensor mask_;
  Rows rows_;
  std::shared_ptr<EncoderDecoderCache> cache_ = std::make_shared<EncoderDecoderCache>();
};

std::shared_ptr<Steps> steps_of(const PreTrainedModel& model, ModelCall forward) {
  if (is_encoder_decoder(model)) return std::make_shared<EncoderDecoderSteps>(std::move(forward));
  return std::make_shared<GrowingSteps>(std::move(forward));
}

std::shared_ptr<Steps> steps_of_draft(const std::shared_ptr<PreTrainedModel>& draft) {
  return steps_of(*draft, [draft](const ModelInputs& inputs) { return draft->forward(inputs); });
}

at::Tensor go_on(const ModelCall& forward, const PreTrainedModel& model, const Prompt& prompt,
                 const GenerationConfig& config, const GenerateCall& call) {
  const auto steps = steps_of(model, forward);
  if (!is_assisted(prompt, config, call, model)) return generation::run(*steps, prompt, config, call);
  const auto candidates = make_candidates(prompt, config, call, steps_of_draft);
  return run_assisted(*steps, *candidates, prompt, config, call);
}

}  // namespace
}  // namespace generation

at::Tensor generate(PreTrainedModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                    const GenerateCall& call) {
  generation::refuse_adapters(call);
  return generation::go_on([&](const ModelInputs& inputs) { return model.forward(inputs); }, model,
                           generation::prepare(prompt, config, model), config, call);
}

at::Tensor generate(PeftModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                    const GenerateCall& call) {
  const AdapterCall adapters{call.adapter_names};
  auto prepared = generation::prepare(prompt, config, *model.base_model(), model.num_virtual_tokens(adapters),
                                      model.vocab_size(adapters));
  if (!prepared.rows.alora_offsets.defined())
    prepared.rows.alora_offsets = model.alora_offsets(prepared.ids, adapters);
  return generation::go_on([&](const ModelInputs& inputs) { return model.forward(inputs, adapters); },
                           *model.base_model(), prepared, config, call);
}

}  // namespace graft
