// Generation over a static cache with a compiled step.
#include <ATen/ATen.h>

#include "generation/assisted.h"
#include "generation/draft.h"
#include "generation/static_steps.h"
#include "graft/error.h"

namespace graft {
using generation::Prompt;
using generation::StaticSteps;

struct Decoder::Impl {
  Impl(generation::Runner with, const CompileOptions& by)
      : runner(std::move(with)), steps(runner), options(by) {}

  generation::Runner runner;
  StaticSteps steps;
  CompileOptions options;
  /// The last call's draft model, whose program the next call may use.
  std::shared_ptr<PreTrainedModel> draft;
  std::shared_ptr<StaticSteps> draft_steps;

  std::unique_ptr<generation::Candidates> candidates(const Prompt& prompt, const GenerationConfig& config,
                                                     const GenerateCall& call) {
    if (!call.assistant_model)
      return std::make_unique<generation::PromptLookup>(*config.prompt_lookup_num_tokens,
                                                        config.max_matching_ngram_size);
    if (draft != call.assistant_model) {
      draft = call.assistant_model;
      draft_steps = std::make_shared<StaticSteps>(generation::runner(draft, options));
    }
    return std::make_unique<generation::Draft>(draft_steps, prompt, config, draft->position_limit());
  }
};

Decoder::Decoder(std::shared_ptr<PreTrainedModel> model, const CompileOptions& options)
    : impl_(std::make_unique<Impl>(generation::runner(std::move(model), options), options)) {}

Decoder::Decoder(std::shared_ptr<PeftModel> model, const CompileOptions& options)
    : impl_(std::make_unique<Impl>(generation::runner(std::move(model), options), options)) {}

Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

at::Tensor Decoder::generate(const ModelInputs& given, const GenerationConfig& config,
                             const GenerateCall& call) {
  const auto& model = *impl_->runner.model;
  if (!impl_->runner.peft) generation::refuse_adapters(call);
  if (generation::is_encoder_decoder(model))
    throw UsageError("[generate] the decode step of an encoder-decoder (" + model.architecture() +
                     ") cannot be compiled yet: generate without compiling");
  const auto prompt = generation::prepare(given, config, model);
  if (!is_assisted(prompt, config, call, model)) {
    impl_->steps.prepare(call.adapter_names, 0);
    return run(impl_->steps, prompt, config, call);
  }
  const auto candidates = impl_->candidates(prompt, config, call);
  impl_->steps.prepare(call.adapter_names, candidates->most());
  return run_assisted(impl_->steps, *candidates, prompt, config, call);
}

}  // namespace graft
