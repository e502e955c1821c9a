// Steps over a cache that grows: any model, nothing compiled.
#pragma once
#include "generation/loop.h"
#include "generation/model_call.h"

namespace graft::generation {

/// For an encoder-decoder, too.
std::shared_ptr<Steps> growing_steps(const PreTrainedModel& model, ModelCall forward);
/// Of a model by itself.
std::shared_ptr<Steps> growing_steps_of(const std::shared_ptr<PreTrainedModel>& model);
/// For models without an encoder.
std::shared_ptr<ResumableSteps> resumable_steps(ModelCall forward);

}  // namespace graft::generation
