#include "generation/growing_steps.h"

#include <ATen/ATen.h>

#include <utility>

namespace graft::generation {
namespace {

class GrowingSteps : public ResumableSteps {
 public:
  explicit GrowingSteps(ModelCall forward) : forward_(std::move(forward)) {}

  at::Tensor resume(const Prompt& prompt, int64_t held) override {
    mask_ = prompt.mask;
    rows_ = prompt.rows;
    if (held == 0)
      cache_->reset();
    else
      cache_->drop_last(cache_->seen() - prompt.virtual_tokens - held);
    return last_logits(forward(prompt.ids.slice(1, held), prompt.positions.slice(1, held)));
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

  void reorder(const at::Tensor& rows) override { cache_->reorder(rows); }

  std::shared_ptr<KVCache> exchange(std::shared_ptr<KVCache> cache) override {
    return std::exchange(cache_, cache ? std::move(cache) : std::make_shared<GrowingCache>());
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
  std::shared_ptr<KVCache> cache_ = std::make_shared<GrowingCache>();
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
  void reorder(const at::Tensor& rows) override { cache_->reorder(rows); }

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

}  // namespace

std::shared_ptr<Steps> growing_steps(const PreTrainedModel& model, ModelCall forward) {
  if (is_encoder_decoder(model)) return std::make_shared<EncoderDecoderSteps>(std::move(forward));
  return resumable_steps(std::move(forward));
}

std::shared_ptr<Steps> growing_steps_of(const std::shared_ptr<PreTrainedModel>& model) {
  return growing_steps(*model, [model](const ModelInputs& inputs) { return model->forward(inputs); });
}

std::shared_ptr<ResumableSteps> resumable_steps(ModelCall forward) {
  return std::make_shared<GrowingSteps>(std::move(forward));
}

}  // namespace graft::generation
