// One batch made ready for a model: on its device, with labels, and what its loss is a mean over.
#pragma once
#include "graft/model.h"

namespace graft::train {

/// UsageError where the model needs labels and there are none; a causal language model takes its inputs.
ModelInputs ready_for(const PreTrainedModel& model, const ModelInputs& inputs);

/// How many labels the loss is a mean over. As transformers counts: a causal language model does not judge
/// the first label of a row, and -100 is no label.
int64_t judged(const PreTrainedModel& model, const ModelInputs& inputs);

/// Tokens that are no padding, or images.
int64_t size_of(const ModelInputs& inputs);

}  // namespace graft::train
