#include "train/arguments.h"

#include <ATen/ATen.h>

#include "graft/error.h"
#include "support/hash.h"
#include "support/log.h"

namespace graft::train {
namespace {

constexpr const char* kFirstBatch = "first_batch";

std::string hash_of(const ModelInputs& batch) {
  std::string bytes;
  for (const auto* tensor : {&batch.input_ids, &batch.pixel_values, &batch.labels}) {
    if (!tensor->defined()) continue;
    const auto plain = tensor->cpu().contiguous();
    bytes.append(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  }
  return hex(hash128({bytes}));
}

}  // namespace

void check_arguments(const TrainingArguments& a) {
  const auto refuse = [](const std::string& what) { throw UsageError("[train] " + what); };
  if (a.gradient_accumulation_steps < 1) refuse("gradient_accumulation_steps must be at least 1");
  if (!(a.max_grad_norm >= 0)) refuse("max_grad_norm must be at least 0 (0: no clipping)");
  if (!(a.weight_decay >= 0)) refuse("weight_decay must be at least 0");
  if (a.max_steps <= 0 && !(a.num_train_epochs > 0))
    refuse("num_train_epochs must be above 0 where max_steps is not given");
  if (a.save_strategy != "no" && a.save_strategy != "steps" && a.save_strategy != "epoch")
    refuse("save_strategy must be no, steps or epoch, got \"" + a.save_strategy + "\"");
  if (a.save_steps < 0) refuse("save_steps must be at least 0 (0: no checkpoints)");
  if (a.save_total_limit && *a.save_total_limit < 1) refuse("save_total_limit must be at least 1");
  if (a.eval_steps < 0) refuse("eval_steps must be at least 0 (0: no evaluation)");
  if (a.early_stopping_patience < 0) refuse("early_stopping_patience must be at least 0 (0: never)");
  if (!(a.early_stopping_threshold >= 0)) refuse("early_stopping_threshold must be at least 0");
  if (a.eval_steps == 0 && (a.load_best_model_at_end || a.early_stopping_patience > 0))
    refuse("load_best_model_at_end and early_stopping_patience go by evaluations: give eval_steps, too");
  if (a.load_best_model_at_end && a.output_dir.empty())
    refuse("load_best_model_at_end needs an output_dir, where the best model is kept");
  if (a.zero_stage != 0 && a.zero_stage != 1 && a.zero_stage != 3) refuse("zero_stage must be 0, 1 or 3");
}

nlohmann::json arguments_json(const TrainingArguments& a, int64_t max_steps, const TrainingData& data) {
  return {{"batches_per_epoch", data.batches()},
          {kFirstBatch, hash_of(data.batch(0, 0))},
          {"learning_rate", a.learning_rate},
          {"lr_scheduler_type", a.lr_scheduler_type},
          {"warmup_steps", a.warmup_steps},
          {"optim", a.optim},
          {"adam_beta1", a.adam_beta1},
          {"adam_beta2", a.adam_beta2},
          {"adam_epsilon", a.adam_epsilon},
          {"weight_decay", a.weight_decay},
          {"loraplus_lr_ratio", a.loraplus_lr_ratio ? nlohmann::json(*a.loraplus_lr_ratio) : nullptr},
          {"loraplus_lr_embedding", a.loraplus_lr_embedding},
          {"max_grad_norm", a.max_grad_norm},
          {"max_steps", max_steps},
          {"gradient_accumulation_steps", a.gradient_accumulation_steps},
          {"bf16", a.bf16},
          {"fp16", a.fp16},
          {"seed", a.seed}};
}

void warn_of_other_arguments(const nlohmann::json& before, const nlohmann::json& now) {
  for (const auto& [name, value] : now.items()) {
    if (!before.contains(name) || before[name] == value) continue;
    if (name == kFirstBatch)
      log_warning(
          "[train] the first batch is another one than in the run that is resumed: other data, or "
          "another size of batches");
    else
      log_warning("[train] " + name + " is " + value.dump() + " and was " + before[name].dump() +
                  " in the run that is resumed");
  }
}

}  // namespace graft::train
