#include "generation/static_steps.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "compiler/options.h"
#include "support/memory.h"

namespace graft::generation {
namespace {

/// Capacities come in steps, so that prompts of about the same length share a program.
int64_t capacity_for(int64_t tokens) {
  constexpr int64_t step = 64;
  return (tokens + step - 1) / step * step;
}

/// Lengths that prompts are filled up to, so that those of about the same length share a program: an eighth
/// more at most, and no step below 16.
int64_t bucket_for(int64_t tokens) {
  constexpr int64_t least = 16, parts = 8;
  const auto step =
      std::max(least, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens))) / parts);
  return (tokens + step - 1) / step * step;
}

}  // namespace

Runner runner(std::shared_ptr<PreTrainedModel> model, CompileOptions options) {
  options = unreplayed(std::move(options));  // no model of ours reads what no guard sees
  Runner made;
  made.eager = [model](const ModelInputs& inputs, const auto&) { return model->forward(inputs); };
  made.compiled = [model, options]() -> AdapterModelCall {
    return [step = compile(model, options)](const ModelInputs& inputs, const auto&) { return step(inputs); };
  };
  made.model = std::move(model);
  return made;
}

Runner runner(std::shared_ptr<PeftModel> model, CompileOptions options) {
  options = unreplayed(std::move(options));  // no model of ours reads what no guard sees
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

StaticSteps::StaticSteps(Runner runner, bool doubles)
    : runner_(std::move(runner)), doubles_(doubles), step_(runner_.compiled()) {}

void StaticSteps::prepare(std::vector<std::string> adapters, int64_t guesses) {
  adapters_ = std::move(adapters);
  guesses_ = guesses;
  if (guesses > 0 && !check_) check_ = runner_.compiled();
}

std::shared_ptr<KVCache> StaticSteps::exchange(std::shared_ptr<KVCache> cache) {
  cache_batch_ = 1;
  return std::exchange(cache_, std::move(cache));
}

/// The one that is there, if it fits; else a larger one, with what is held of the prompt, or without buffers.
void StaticSteps::make_room(const Prompt& prompt, int64_t held) {
  const bool has_source = prompt.source_ids.defined();
  const int64_t source = has_source ? prompt.source_ids.size(1) + prompt.virtual_tokens : 0;
  const int64_t needed = std::max(prompt.cached() + guesses_, held + bucket_of(prompt, held).value_or(0));
  virtual_tokens_ = prompt.virtual_tokens;
  // A program cannot put other buffers in the place of those that it is given.
  if (const std::pair now(runner_.model->dtype(), runner_.model->device()); kind_ != now) {
    if (held == 0) cache_ = nullptr;
    kind_ = now;
  }
  const bool fits = capacity_ >= needed && source_capacity_ >= source;
  if (!fits) {
    const auto larger = std::max(capacity_for(needed), doubles_ ? 2 * capacity_ : capacity_);
    check_memory(static_cast<double>(larger) * static_cast<double>(prompt.batch()) * sizeof(int64_t),
                 "the mask alone of a cache for " + std::to_string(larger) + " tokens takes",
                 "lower max_new_tokens");
    capacity_ = larger;
  }
  if (held > 0) {
    cache_->drop_last(cache_->seen() - prompt.virtual_tokens - held);
    // Another choice of adapters may have made room meanwhile: all caches are of one size.
    const auto own = std::dynamic_pointer_cast<StaticCache>(cache_);
    if (own->capacity() < capacity_) cache_ = own->enlarged(capacity_);
    return;
  }
  if (cache_ && cache_batch_ == prompt.batch() && fits) {
    cache_->reset();
    return;
  }
  prompts_seen_.clear();
  cache_batch_ = prompt.batch();
  source_capacity_ = std::max(capacity_for(source), source_capacity_);
  if (has_source)
    cache_ = std::make_shared<EncoderDecoderCache>(capacity_, source_capacity_);
  else
    cache_ = std::make_shared<StaticCache>(capacity_);
}

ModelInputs StaticSteps::inputs(const at::Tensor& tokens, const at::Tensor& positions) const {
  ModelInputs inputs{.attention_mask = mask_, .past_key_values = cache_};
  if (source_capacity_ > 0) {
    inputs.decoder_input_ids = tokens;
  } else {
    inputs.input_ids = tokens;
    inputs.position_ids = positions;
  }
  rows_.put_into(inputs);
  return inputs;
}

at::Tensor StaticSteps::resume(const Prompt& prompt, int64_t held) {
  make_room(prompt, held);
  rows_ = prompt.rows;
  if (prompt.source_ids.defined()) return start_decoder(prompt);
  mask_ = at::ones({prompt.batch(), capacity_ - virtual_tokens_}, prompt.ids.options());
  if (prompt.mask.defined()) mask_.slice(1, 0, prompt.length()).copy_(prompt.mask);
  const auto bucket = bucket_of(prompt, held);
  const auto ids = prompt.ids.slice(1, held), positions = prompt.positions.slice(1, held);
  // To compile for one prompt is not worth it, and the first of all makes the cache's buffers.
  if (prompts_seen_.empty() || !bucket || !prompts_seen_.contains(*bucket)) {
    prompts_seen_.insert(bucket.value_or(0));
    return last_logits(runner_.eager(inputs(ids, positions), adapters_));
  }
  auto& program = prompts_[*bucket];
  if (!program) program = runner_.compiled();
  return filled_up(program, ids, positions, *bucket).select(1, ids.size(1) - 1);
}

/// None where what is filled in would need positions that the model does not have, or has in another way, and
/// where adapters would see it.
std::optional<int64_t> StaticSteps::bucket_of(const Prompt& prompt, int64_t held) const {
  if (prompt.source_ids.defined() || prompt.virtual_tokens > 0 || prompt.mixes_tokens) return {};
  const auto bucket = bucket_for(prompt.length() - held);
  for (const auto limit : {runner_.model->position_limit(), runner_.model->rotation_limit()})
    if (limit && held + bucket > *limit) return {};
  return bucket;
}

/// The logits of tokens that are filled up to so many, which the cache forgets again.
at::Tensor StaticSteps::filled_up(const AdapterModelCall& program, const at::Tensor& tokens,
                                  const at::Tensor& positions, int64_t length) {
  const int64_t given = tokens.size(1), filled = length - given;
  const auto all_positions =
      at::cat({positions, positions.slice(1, given - 1) + at::arange(1, filled + 1, positions.options())}, 1);
  const auto output = program(inputs(at::constant_pad_nd(tokens, {0, filled}, 0), all_positions), adapters_);
  cache_->drop_last(filled);
  return all_logits(output);
}

/// The encoder reads the source as it is; what its cache is filled up with is masked after that.
at::Tensor StaticSteps::start_decoder(const Prompt& prompt) {
  const auto& source = prompt.source_ids;
  mask_ = at::zeros({prompt.batch(), source_capacity_}, source.options());
  auto own = mask_.slice(1, 0, source.size(1));
  if (prompt.source_mask.defined())
    own.copy_(prompt.source_mask);
  else
    own.fill_(1);
  return last_logits(runner_.eager({.input_ids = source,
                                    .attention_mask = prompt.source_mask,
                                    .decoder_input_ids = prompt.ids,
                                    .past_key_values = cache_,
                                    .task_ids = rows_.task_ids},
                                   adapters_));
}

bool StaticSteps::has_positions(int64_t tokens) const {
  const auto limit = runner_.model->position_limit();
  return !limit || cache_->seen() + tokens <= *limit;
}

at::Tensor StaticSteps::next(const at::Tensor& tokens, const at::Tensor& positions) {
  return last_logits(step_(inputs(tokens, positions), adapters_));
}

at::Tensor StaticSteps::several(const at::Tensor& tokens, const at::Tensor& positions) {
  // What is filled in must have a position that the model knows. Before the end of its table the rest is few.
  if (!has_positions(guesses_ + 1)) return all_logits(runner_.eager(inputs(tokens, positions), adapters_));
  return filled_up(check_, tokens, positions, guesses_ + 1).slice(1, 0, tokens.size(1));
}

}  // namespace graft::generation
