#include "generation/loop.h"

#include <ATen/ATen.h>

#include "generation/choice.h"

namespace graft::generation {
namespace {

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
