// Generation over a growing cache: any model, nothing compiled.
#include "graft/generate.h"

#include <ATen/ATen.h>

#include "generation/assisted.h"
#include "generation/draft.h"
#include "generation/growing_steps.h"

namespace graft {
namespace generation {
namespace {

GenerateOutput go_on(const ModelCall& forward, const PreTrainedModel& model, const Prompt& prompt,
                     const GenerationConfig& config, const GenerateCall& call, bool with_logprobs) {
  const auto steps = growing_steps(model, forward);
  if (!is_assisted(prompt, config, call, model)) return run(*steps, prompt, config, call, with_logprobs);
  const auto candidates = make_candidates(prompt, config, call, growing_steps_of);
  return run_assisted(*steps, *candidates, prompt, config, call, with_logprobs);
}

GenerateOutput go_on(PreTrainedModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                     const GenerateCall& call, bool with_logprobs) {
  refuse_adapters(call);
  return go_on([&](const ModelInputs& inputs) { return model.forward(inputs); }, model,
               prepare(prompt, config, model), config, call, with_logprobs);
}

GenerateOutput go_on(PeftModel& model, const ModelInputs& given, const GenerationConfig& config,
                     const GenerateCall& call, bool with_logprobs) {
  const AdapterCall named{call.adapter_names};
  auto prompt =
      prepare(given, config, *model.base_model(), model.num_virtual_tokens(named), model.vocab_size(named));
  const AdapterCall adapters{for_copies(call.adapter_names, prompt.copies)};
  put_adapters(prompt, model, adapters.adapter_names);
  return go_on([&](const ModelInputs& inputs) { return model.forward(inputs, adapters); },
               *model.base_model(), prompt, config, call, with_logprobs);
}

}  // namespace
}  // namespace generation

at::Tensor generate(PreTrainedModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                    const GenerateCall& call) {
  return generation::go_on(model, prompt, config, call, /*with_logprobs=*/false).sequences;
}

at::Tensor generate(PeftModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                    const GenerateCall& call) {
  return generation::go_on(model, prompt, config, call, /*with_logprobs=*/false).sequences;
}

GenerateOutput generate_with_scores(PreTrainedModel& model, const ModelInputs& prompt,
                                    const GenerationConfig& config, const GenerateCall& call) {
  return generation::go_on(model, prompt, config, call, /*with_logprobs=*/true);
}

GenerateOutput generate_with_scores(PeftModel& model, const ModelInputs& prompt,
                                    const GenerationConfig& config, const GenerateCall& call) {
  return generation::go_on(model, prompt, config, call, /*with_logprobs=*/true);
}

}  // namespace graft
