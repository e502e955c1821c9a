#include "generation/loop.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <random>

#include "generation/scores.h"

namespace graft::generation {
namespace {

/// The next token of each row, [batch]: the likeliest, or one drawn by the probabilities. Draws are made on
/// the host, so that a seed means the same tokens on every device.
class Choice {
 public:
  explicit Choice(const GenerationConfig& config) : config_(config) {
    if (config.do_sample)
      generator_ = at::detail::createCPUGenerator(config.seed ? *config.seed : std::random_device{}());
  }

  at::Tensor operator()(const at::Tensor& logits, const at::Tensor& ids, int64_t prompt_length) {
    const auto scores = scores_of(logits.to(at::kFloat), ids, prompt_length, config_);
    if (!config_.do_sample) return scores.argmax(-1);
    const auto probabilities = scores.softmax(-1).cpu();
    return at::multinomial(probabilities, 1, /*replacement=*/false, generator_).squeeze(1).to(ids.device());
  }

 private:
  const GenerationConfig& config_;
  at::Generator generator_;
};

bool told(const GenerateCall& call, const at::Tensor& tokens) {
  if (!call.on_tokens) return true;
  const auto host = tokens.cpu();
  const auto* values = host.const_data_ptr<int64_t>();
  return call.on_tokens({values, values + host.numel()});
}

}  // namespace

at::Tensor run(Steps& steps, const Prompt& prompt, const GenerationConfig& config, const GenerateCall& call) {
  const at::NoGradGuard no_grad;
  const int64_t length = prompt.length(), pad = config.pad_token_id.value_or(0);
  auto sequences = at::full({prompt.batch(), length + prompt.new_tokens}, pad, prompt.ids.options());
  sequences.slice(1, 0, length).copy_(prompt.ids);
  const auto eos = at::tensor(config.eos_token_id, prompt.ids.options());
  auto ended = at::zeros({prompt.batch()}, prompt.ids.options().dtype(at::kBool));
  auto position = prompt.positions.select(1, length - 1);
  Choice choose(config);

  auto logits = steps.start(prompt);
  for (int64_t made = length;;) {
    auto tokens = choose(logits, sequences.slice(1, 0, made), length);
    if (!config.eos_token_id.empty()) {
      tokens = tokens.masked_fill(ended, pad);
      ended = ended.logical_or(at::isin(tokens, eos));
    }
    sequences.select(1, made++).copy_(tokens);
    const bool go_on = told(call, tokens);
    if (!go_on || made == sequences.size(1) || (!config.eos_token_id.empty() && ended.all().item<bool>()))
      return sequences.slice(1, 0, made).contiguous();
    position = position + 1;
    logits = steps.next(tokens.unsqueeze(1), position.unsqueeze(1));
  }
}

}  // namespace graft::generation
