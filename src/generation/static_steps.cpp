#include "generation/static_steps.h"

#include <ATen/ATen.h>

namespace graft::generation {
namespace {

/// Capacities come in steps, so that prompts of about the same length share a program.
int64_t capacity_for(int64_t tokens) {
  constexpr int64_t step = 64;
  return (tokens + step - 1) / step * step;
}

}  // namespace

Runner runner(std::shared_ptr<PreTrainedModel> model, const CompileOptions& options) {
  Runner made;
  made.eager = [model](const ModelInputs& inputs, const auto&) { return model->forward(inputs); };
  made.compiled = [model, options]() -> AdapterModelCall {
    return [step = compile(model, options)](const ModelInputs& inputs, const auto&) { return step(inputs); };
  };
  made.model = std::move(model);
  return made;
}

Runner runner(std::shared_ptr<PeftModel> model, const CompileOptions& options) {
  Runner made;
  made.model = model->base_model();
  made.eager = [model](const ModelInputs& inputs, const auto& names) {
    return model->forward(inputs, {names});
  };
  made.compiled = [model, options]() -> AdapterModelCall {
    return [step = compile(model, options)](const ModelInputs& inputs, const auto& names) {
      return step(inputs, {names});
    };
  };
  made.peft = std::move(model);
  return made;
}

StaticSteps::StaticSteps(Runner runner) : runner_(std::move(runner)), step_(runner_.compiled()) {}

void StaticSteps::prepare(std::vector<std::string> adapters, int64_t guesses) {
  adapters_ = std::move(adapters);
  guesses_ = guesses;
  if (guesses > 0 && !check_) check_ = runner_.compiled();
}

/// The one that is there, if it fits; else a new one.
void StaticSteps::make_room(const Prompt& prompt) {
  const int64_t needed = prompt.length() + prompt.new_tokens - 1 + guesses_;
  if (cache_ && cache_batch_ == prompt.batch() && cache_->capacity() >= needed) {
    cache_->reset();
    return;
  }
  cache_ = std::make_shared<StaticCache>(capacity_for(needed));
  cache_batch_ = prompt.batch();
}

ModelInputs StaticSteps::inputs(const at::Tensor& tokens, const at::Tensor& positions) const {
  return {.input_ids = tokens, .attention_mask = mask_, .position_ids = positions, .past_key_values = cache_};
}

at::Tensor StaticSteps::start(const Prompt& prompt) {
  make_room(prompt);
  mask_ = at::ones({prompt.batch(), cache_->capacity()}, prompt.ids.options());
  if (prompt.mask.defined()) mask_.slice(1, 0, prompt.length()).copy_(prompt.mask);
  return last_logits(runner_.eager(inputs(prompt.ids, prompt.positions), adapters_));
}

at::Tensor StaticSteps::next(const at::Tensor& tokens, const at::Tensor& positions) {
  return last_logits(step_(inputs(tokens, positions), adapters_));
}

at::Tensor StaticSteps::several(const at::Tensor& tokens, const at::Tensor& positions) {
  const int64_t given = tokens.size(1), filled = guesses_ + 1 - given;
  // What is filled in must have a position that the model knows; nobody looks at what comes of it.
  auto all_positions =
      at::cat({positions, positions.slice(1, given - 1) + at::arange(1, filled + 1, positions.options())}, 1);
  if (const auto limit = runner_.model->position_limit()) all_positions = all_positions.clamp_max(*limit - 1);
  const auto output = check_(inputs(at::constant_pad_nd(tokens, {0, filled}, 0), all_positions), adapters_);
  cache_->drop_last(filled);
  return all_logits(output).slice(1, 0, given);
}

}  // namespace graft::generation
