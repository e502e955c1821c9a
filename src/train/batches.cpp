#include "train/batches.h"

#include <ATen/ATen.h>

#include "graft/error.h"
#include "models/architecture.h"
#include "nn/loss.h"

namespace graft::train {

ModelInputs ready_for(const PreTrainedModel& model, const ModelInputs& inputs) {
  ModelInputs ready = inputs;
  const auto task = find_architecture(model.architecture()).task;
  if (task == Task::base)
    throw UsageError("[train] " + model.architecture() +
                     " has no head and so no loss; train a checkpoint with a head");
  if (!ready.labels.defined()) {
    if (task != Task::causal_lm)
      throw UsageError("[train] " + model.architecture() + " needs labels, and the data have none");
    ready.labels = ready.input_ids;
  }
  for (auto* tensor : {&ready.input_ids, &ready.attention_mask, &ready.position_ids, &ready.token_type_ids,
                       &ready.pixel_values, &ready.labels, &ready.decoder_input_ids,
                       &ready.decoder_attention_mask, &ready.task_ids, &ready.input_type_mask})
    if (tensor->defined()) *tensor = tensor->to(model.device());
  if (ready.pixel_values.defined()) ready.pixel_values = ready.pixel_values.to(model.dtype());
  return ready;
}

ModelInputs rows_of(const ModelInputs& inputs, int rank, int size) {
  if (size == 1) return inputs;
  ModelInputs mine = inputs;
  for (auto* tensor : {&mine.input_ids, &mine.attention_mask, &mine.position_ids, &mine.token_type_ids,
                       &mine.pixel_values, &mine.labels, &mine.task_ids, &mine.input_type_mask})
    if (tensor->defined()) {
      const auto rows = tensor->size(0);
      *tensor = tensor->slice(0, rows * rank / size, rows * (rank + 1) / size);
    }
  return mine;
}

int64_t judged(const PreTrainedModel& model, const ModelInputs& inputs) {
  auto labels = inputs.labels;
  if (at::isFloatingType(labels.scalar_type())) return labels.size(0);  // regression, several labels a row
  if (find_architecture(model.architecture()).task == Task::causal_lm) labels = labels.slice(-1, 1);
  return labels.ne(nn::kIgnoredLabel).sum().item<int64_t>();
}

int64_t size_of(const ModelInputs& inputs) {
  if (inputs.attention_mask.defined()) return inputs.attention_mask.sum().item<int64_t>();
  return inputs.input_ids.defined() ? inputs.input_ids.numel() : inputs.pixel_values.size(0);
}

}  // namespace graft::train
