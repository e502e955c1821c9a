#include "train/arguments.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "graft/error.h"
#include "support/counted.h"
#include "support/hash.h"
#include "support/log.h"
#include "train/schedule.h"

namespace graft::train {
namespace {

constexpr const char *kData = "data", *kEvalData = "eval_data";

/// What a batch is made of, for a hash.
class Bytes : public LeafVisitor {
 public:
  void tensor(at::Tensor& tensor) override {
    if (!tensor.defined()) {
      all.push_back('-');
      return;
    }
    const auto plain = tensor.detach().cpu().contiguous();
    all += c10::toString(plain.scalar_type());
    for (const auto size : plain.sizes()) all += " " + std::to_string(size);
    all.push_back(':');
    all.append(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  }
  void fixed(int64_t value) override { all += std::to_string(value); }
  void refuse(const char*) override {}

  std::string all;
};

}  // namespace

std::string mark_of(const TrainingData& data) {
  if (auto own = data.fingerprint(); !own.empty()) return own;
  if (data.batches() < 1) return {};
  auto first = data.batch(0, 0);
  Bytes bytes;
  Leaves<ModelInputs>::visit(first, bytes);
  return hex(hash128({std::to_string(data.batches()), bytes.all}));
}

int64_t count_steps(const TrainingArguments& arguments, int64_t updates_per_epoch) {
  if (arguments.max_steps > 0) return arguments.max_steps;
  const double steps = std::ceil(arguments.num_train_epochs * static_cast<double>(updates_per_epoch));
  if (steps < kMostSteps) return static_cast<int64_t>(steps);
  throw UsageError(
      "[train] num_train_epochs " + shown(arguments.num_train_epochs) +
      " is more steps than can be counted: give max_steps, and end the run when it is good enough");
}

void check_arguments(const TrainingArguments& a) {
  const auto refuse = [](const std::string& what) { throw UsageError("[train] " + what); };
  const auto number = [&](const char* name, double value,
                          double below = std::numeric_limits<double>::infinity()) {
    if (!(value >= 0 && value < below))
      refuse(std::string(name) + " must be " +
             (std::isinf(below) ? "a number from 0" : "at least 0 and below 1") + ", got " + shown(value));
  };
  number("adam_beta1", a.adam_beta1, 1);
  number("adam_beta2", a.adam_beta2, 1);
  number("adam_epsilon", a.adam_epsilon);
  number("weight_decay", a.weight_decay);
  number("loraplus_lr_embedding", a.loraplus_lr_embedding);
  if (a.loraplus_lr_ratio && !(*a.loraplus_lr_ratio > 0 && std::isfinite(*a.loraplus_lr_ratio)))
    refuse("loraplus_lr_ratio must be a number above 0, got " + shown(*a.loraplus_lr_ratio));
  if (a.gradient_accumulation_steps < 1) refuse("gradient_accumulation_steps must be at least 1");
  if (!(a.max_grad_norm >= 0)) refuse("max_grad_norm must be at least 0 (0: no clipping)");
  if (a.max_steps <= 0 && !(a.num_train_epochs > 0 && std::isfinite(a.num_train_epochs)))
    refuse("num_train_epochs must be a number above 0 where max_steps is not given, got " +
           shown(a.num_train_epochs));
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

nlohmann::json arguments_json(const TrainingArguments& a, int64_t max_steps, int64_t batches,
                              const std::string& data, const std::string& eval_data) {
  return {{"batches_per_epoch", batches},
          {kData, data},
          {kEvalData, eval_data},
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
          {"compile", a.compile.backend != Backend::eager},
          {"eval_steps", a.eval_steps},
          {"load_best_model_at_end", a.load_best_model_at_end},
          {"early_stopping_patience", a.early_stopping_patience},
          {"early_stopping_threshold", a.early_stopping_threshold},
          {"seed", a.seed}};
}

void warn_of_other_arguments(const nlohmann::json& before, const nlohmann::json& now) {
  for (const auto& [name, value] : now.items()) {
    if (name == kEvalData || !before.contains(name) || before[name] == value) continue;
    if (name == kData)
      log_warning(
          "[train] the data are not those of the run that is resumed: other rows, another order, or rows "
          "that "
          "are cut, padded or put into batches otherwise");
    else
      log_warning("[train] " + name + " is " + value.dump() + " and was " + before[name].dump() +
                  " in the run that is resumed");
  }
}

bool evaluates_on_other_data(const nlohmann::json& before, const nlohmann::json& now) {
  return before.contains(kEvalData) && before[kEvalData] != now[kEvalData];
}

}  // namespace graft::train
