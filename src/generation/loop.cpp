#include "generation/loop.h"

#include <ATen/ATen.h>

#include "generation/all_ended.h"
#include "generation/beam_search.h"
#include "generation/choice.h"
#include "generation/sequences.h"
#include "generation/stops.h"

namespace graft::generation {

bool told(const GenerateCall& call, const at::Tensor& tokens) {
  if (!call.on_tokens) return true;
  const auto host = tokens.cpu();
  const auto* values = host.const_data_ptr<int64_t>();
  return call.on_tokens({values, values + host.numel()});
}

GenerateOutput run(Steps& steps, const Prompt& prompt, const GenerationConfig& config,
                   const GenerateCall& call, bool with_logprobs) {
  if (config.num_beams > 1) return search(steps, prompt, config, call);
  // Who is told each token waits for it in any case.
  return run(steps, prompt, config, call, with_logprobs, prompt.ids.is_cuda() && !call.on_tokens);
}

GenerateOutput run(Steps& steps, const Prompt& prompt, const GenerationConfig& config,
                   const GenerateCall& call, bool with_logprobs, bool looks_late) {
  const at::NoGradGuard no_grad;
  const int64_t pad = config.pad_token_id.value_or(0);
  Sequences sequences(prompt.ids);
  auto ended = at::zeros({prompt.batch()}, prompt.ids.options().dtype(at::kBool));
  auto position = prompt.positions.select(1, prompt.length() - 1);
  const Choice choose(config, prompt.score_context());
  const Stops stops(config, call.tokenizer);
  AllEnded all_ended(looks_late);
  std::vector<at::Tensor> logprobs;
  // The largest of the logits is the largest of what they are as floats.
  const bool as_they_are = choose.scores().none() && !config.do_sample && !with_logprobs;

  auto logits = steps.start(prompt);
  for (;;) {
    const auto scores = as_they_are ? logits : choose.scores()(logits, sequences.ids());
    auto tokens = choose(scores);
    if (with_logprobs)
      logprobs.push_back(
          scores.log_softmax(-1).gather(1, tokens.unsqueeze(1)).masked_fill(ended.unsqueeze(1), 0));
    if (stops.any()) tokens = tokens.masked_fill(ended, pad);
    sequences.add(tokens);
    if (stops.any()) ended = ended.logical_or(stops.ended_by(sequences.ids()));
    const bool go_on = told(call, tokens) && !stops.late();
    if (stops.any() && all_ended.after(ended)) {
      if (looks_late) {  // this step was one too many; the cache may hold more than was asked for
        sequences.drop_last();
        if (with_logprobs) logprobs.pop_back();
      }
      break;
    }
    if (!go_on || sequences.length() == prompt.max_length()) break;
    position = position + 1;
    logits = steps.next(tokens.unsqueeze(1), position.unsqueeze(1));
  }
  return {.sequences = sequences.ids().contiguous(),
          .logprobs = with_logprobs ? at::cat(logprobs, 1) : at::Tensor()};
}

}  // namespace graft::generation
