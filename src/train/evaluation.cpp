#include "train/evaluation.h"

#include <ATen/ATen.h>

#include <cmath>

#include "graft/error.h"
#include "models/architecture.h"
#include "nn/loss.h"
#include "train/batches.h"
#include "train/module_mode.h"

namespace graft::train {
namespace {

/// How many labels the largest logit hits.
int64_t hits(const ModelInputs& batch, at::Tensor logits, Task task) {
  auto labels = batch.labels;
  if (task == Task::causal_lm) {
    labels = labels.slice(1, 1);
    logits = logits.slice(1, 0, -1);
  }
  const auto right = logits.argmax(-1).eq(labels.view(logits.sizes().slice(0, logits.dim() - 1)));
  return right.sum().item<int64_t>();  // -100 is never the largest logit's place
}

}  // namespace

EvalMetrics Evaluator::evaluate(const TrainingData& data) const {
  const ModuleMode mode(*subject_.module(), /*training=*/false);
  const at::NoGradGuard no_grad;
  const auto task = find_architecture(subject_.model().architecture()).task;
  EvalMetrics metrics;
  int64_t right = 0;
  bool classes = true;
  for (int64_t i = group_->rank(); i < data.batches(); i += group_->size()) {
    const auto batch = ready_for(subject_.model(), data.batch(0, i));
    const auto count = judged(subject_.model(), batch);
    if (count == 0) continue;
    const auto out = forward_(batch);
    metrics.loss += out.loss.item<double>() * static_cast<double>(count);
    metrics.items += count;
    classes &= !at::isFloatingType(batch.labels.scalar_type()) && out.logits.size(-1) > 1;
    if (classes) right += hits(batch, out.logits, task);
  }
  const auto sums = at::tensor(
      {metrics.loss, static_cast<double>(metrics.items), static_cast<double>(right), classes ? 0.0 : 1.0},
      at::kDouble);
  group_->all_reduce(sums);
  metrics.loss = sums[0].item<double>();
  metrics.items = sums[1].item<int64_t>();
  right = sums[2].item<int64_t>();
  classes = sums[3].item<double>() == 0;
  if (metrics.items == 0) throw UsageError("[train] the data to evaluate on have no label that counts");
  metrics.loss /= static_cast<double>(metrics.items);
  if (classes) metrics.accuracy = static_cast<double>(right) / static_cast<double>(metrics.items);
  if (task == Task::causal_lm || task == Task::masked_lm || task == Task::seq2seq_lm)
    metrics.perplexity = std::exp(metrics.loss);
  return metrics;
}

Standing standing_of(const std::vector<TrainingStep>& log, double threshold,
                     const std::set<int64_t>& forgotten) {
  Standing now;
  for (const auto& step : log) {
    if (!step.eval || forgotten.contains(step.step)) continue;
    const double loss = step.eval->loss;
    // As transformers' EarlyStoppingCallback has it: compared with the best so far, however little that was
    // better than the one before.
    const bool better = !now.best_step || (loss < now.best_loss && now.best_loss - loss > threshold);
    now.no_better = better ? 0 : now.no_better + 1;
    if (!now.best_step || loss < now.best_loss) now.best_step = step.step, now.best_loss = loss;
  }
  return now;
}

}  // namespace graft::train
