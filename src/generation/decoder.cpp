// Generation over a static cache with a compiled step.
#include <ATen/ATen.h>

#include "generation/assisted.h"
#include "generation/draft.h"
#include "generation/static_steps.h"

namespace graft {
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

  std::shared_ptr<generation::Steps> steps_of_draft(const std::shared_ptr<PreTrainedModel>& model) {
    if (draft != model) {
      draft = model;
      draft_steps = std::make_shared<StaticSteps>(generation::runner(draft, options));
    }
    return draft_steps;
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
  auto prompt = generation::prepare(given, config, model, impl_->runner.virtual_tokens(call.adapter_names),
                                    impl_->runner.vocabulary(call.adapter_names));
  if (impl_->runner.peft && !prompt.rows.alora_offsets.defined())
    prompt.rows.alora_offsets = impl_->runner.peft->alora_offsets(prompt.ids, {call.adapter_names});
  if (!is_assisted(prompt, config, call, model)) {
    impl_->steps.prepare(call.adapter_names, 0);
    return run(impl_->steps, prompt, config, call);
  }
  const auto candidates = make_candidates(prompt, config, call,
                                          [this](const auto& draft) { return impl_->steps_of_draft(draft); });
  impl_->steps.prepare(call.adapter_names, candidates->most());
  return run_assisted(impl_->steps, *candidates, prompt, config, call);
}

}  // namespace graft
