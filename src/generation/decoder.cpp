// Generation over a static cache with a compiled step.
#include <ATen/ATen.h>

#include "generation/assisted.h"
#include "generation/draft.h"
#include "generation/one_at_a_time.h"
#include "generation/static_steps.h"
#include "support/given.h"

namespace graft {
using generation::StaticSteps;

namespace {
constexpr auto kDecoder = "[generate] this Decoder";
}

struct Decoder::Impl {
  Impl(generation::Runner with, const CompileOptions& by)
      : runner(std::move(with)), steps(runner), options(by) {}

  generation::Runner runner;
  StaticSteps steps;
  CompileOptions options;
  /// The last call's draft model, whose program the next call may use.
  std::shared_ptr<PreTrainedModel> draft;
  std::shared_ptr<StaticSteps> draft_steps;
  std::atomic<bool> busy = false;

  std::shared_ptr<generation::Steps> steps_of_draft(const std::shared_ptr<PreTrainedModel>& model) {
    if (draft != model) {
      draft = model;
      draft_steps = std::make_shared<StaticSteps>(generation::runner(draft, options));
    }
    return draft_steps;
  }

  GenerateOutput generate(const ModelInputs& inputs, const GenerationConfig& config, const GenerateCall& call,
                          bool with_logprobs);
};

Decoder::Decoder(std::shared_ptr<PreTrainedModel> model, const CompileOptions& options)
    : impl_(std::make_unique<Impl>(
          generation::runner(given(std::move(model), "[generate] the model"), options), options)) {}

Decoder::Decoder(std::shared_ptr<PeftModel> model, const CompileOptions& options)
    : impl_(std::make_unique<Impl>(
          generation::runner(given(std::move(model), "[generate] the model"), options), options)) {}

Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

GenerateOutput Decoder::Impl::generate(const ModelInputs& inputs, const GenerationConfig& config,
                                       const GenerateCall& call, bool with_logprobs) {
  const generation::OneAtATime only(
      busy, "[generate] this Decoder is in another call, by a callback or another thread: make one for each");
  const auto& model = *runner.model;
  if (!runner.peft) generation::refuse_adapters(call);
  auto prompt = generation::prepare(inputs, config, model, runner.virtual_tokens(call.adapter_names),
                                    runner.vocabulary(call.adapter_names));
  const auto adapters = generation::for_copies(call.adapter_names, prompt.copies);
  if (runner.peft) generation::put_adapters(prompt, *runner.peft, adapters);
  if (!is_assisted(prompt, config, call, model)) {
    steps.prepare(adapters, 0);
    return run(steps, prompt, config, call, with_logprobs);
  }
  const auto candidates =
      make_candidates(prompt, config, call, [this](const auto& draft) { return steps_of_draft(draft); });
  steps.prepare(adapters, candidates->most());
  return run_assisted(steps, *candidates, prompt, config, call, with_logprobs);
}

at::Tensor Decoder::generate(const ModelInputs& prompt, const GenerationConfig& config,
                             const GenerateCall& call) {
  return behind(impl_, kDecoder).generate(prompt, config, call, /*with_logprobs=*/false).sequences;
}

GenerateOutput Decoder::generate_with_scores(const ModelInputs& prompt, const GenerationConfig& config,
                                             const GenerateCall& call) {
  return behind(impl_, kDecoder).generate(prompt, config, call, /*with_logprobs=*/true);
}

}  // namespace graft
