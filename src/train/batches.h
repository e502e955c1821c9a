// One batch made ready for a model: on its device, with labels, and what its loss is a mean over.
#pragma once
#include "graft/model.h"

namespace graft::train {

/// UsageError where the model needs labels and there are none; a causal language model takes its inputs.
ModelInputs ready_for(const PreTrainedModel& model, const ModelInputs& inputs);

/// The rows that process `rank` of `size` takes of a batch: each row is one process's, and where there are
/// fewer rows than processes some have none.
ModelInputs rows_of(const ModelInputs& inputs, int rank, int size);

/// How many labels the loss is a mean over. As transformers counts: a causal language model does not judge
/// the first label of a row, and -100 is no label.
int64_t judged(const PreTrainedModel& model, const ModelInputs& inputs);

/// Tokens that are no padding, or images.
int64_t size_of(const ModelInputs& inputs);

}  // namespace graft::train
