// Generation over a static cache with a compiled step: shapes never change, so one program serves all steps.
#include <ATen/ATen.h>

#include "generation/loop.h"
#include "generation/model_call.h"
#include "graft/error.h"

namespace graft {
using generation::last_logits;
using generation::Prompt;

namespace {

/// Capacities come in steps, so that prompts of about the same length share a program.
int64_t capacity_for(int64_t tokens) {
  constexpr int64_t step = 64;
  return (tokens + step - 1) / step * step;
}

}  // namespace

struct Decoder::Impl : generation::Steps {
  /// Both are told which adapters serve which rows.
  using AdapterModelCall = std::function<ModelOutput(const ModelInputs&, const std::vector<std::string>&)>;

  std::shared_ptr<PreTrainedModel> model;
  AdapterModelCall eager, compiled;
  bool has_adapters = false;

  std::shared_ptr<StaticCache> cache;
  int64_t cache_batch = 0;
  at::Tensor mask;                    ///< [batch, capacity]; what is not written yet the causal mask hides
  std::vector<std::string> adapters;  ///< of the call at work

  /// The one that is there, if it fits; else a new one.
  void make_room(const Prompt& prompt) {
    const int64_t needed = prompt.length() + prompt.new_tokens - 1;
    if (cache && cache_batch == prompt.batch() && cache->capacity() >= needed) {
      cache->reset();
      return;
    }
    cache = std::make_shared<StaticCache>(capacity_for(needed));
    cache_batch = prompt.batch();
  }

  at::Tensor start(const Prompt& prompt) override {
    make_room(prompt);
    mask = at::ones({prompt.batch(), cache->capacity()}, prompt.ids.options());
    if (prompt.mask.defined()) mask.slice(1, 0, prompt.length()).copy_(prompt.mask);
    return last_logits(eager({.input_ids = prompt.ids,
                              .attention_mask = mask,
                              .position_ids = prompt.positions,
                              .past_key_values = cache},
                             adapters));
  }

  at::Tensor next(const at::Tensor& tokens, const at::Tensor& positions) override {
    return last_logits(compiled(
        {.input_ids = tokens, .attention_mask = mask, .position_ids = positions, .past_key_values = cache},
        adapters));
  }
};

Decoder::Decoder(std::shared_ptr<PreTrainedModel> model, const CompileOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->eager = [model](const ModelInputs& inputs, const auto&) { return model->forward(inputs); };
  impl_->compiled = [step = compile(model, options)](const ModelInputs& inputs, const auto&) {
    return step(inputs);
  };
  impl_->model = std::move(model);
}

Decoder::Decoder(std::shared_ptr<PeftModel> model, const CompileOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->has_adapters = true;
  impl_->model = model->base_model();
  impl_->compiled = [step = compile(model, options)](const ModelInputs& inputs, const auto& names) {
    return step(inputs, {names});
  };
  impl_->eager = [model = std::move(model)](const ModelInputs& inputs, const auto& names) {
    return model->forward(inputs, {names});
  };
}

Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

at::Tensor Decoder::generate(const ModelInputs& prompt, const GenerationConfig& config,
                             const GenerateCall& call) {
  if (!impl_->has_adapters) generation::refuse_adapters(call);
  if (generation::is_encoder_decoder(*impl_->model))
    throw UsageError("[generate] the decode step of an encoder-decoder (" + impl_->model->architecture() +
                     ") cannot be compiled yet: generate without compiling");
  impl_->adapters = call.adapter_names;
  return run(*impl_, generation::prepare(prompt, config, *impl_->model), config, call);
}

}  // namespace graft
