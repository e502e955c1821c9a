// Optimizers over a list of tensors, with torch's formulas and, where it has one, its fused kernel.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "graft/safetensors.h"
#include "graft/trainer.h"

namespace graft::train {

/// A tensor in training.
struct Trained {
  std::string name;  ///< in the adapter's file, or its path in the model
  at::Tensor tensor;
  bool decays = true;   ///< weight decay is for it, too
  double lr_scale = 1;  ///< its learning rate in that of the run
};

/// The tensors with LoRA+'s learning rates, where the arguments ask for it.
std::vector<Trained> with_rates(std::vector<Trained> tensors, const TrainingArguments& arguments);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One gradient for each tensor; undefined where the loss does not depend on it: then nothing happens to
  /// it.
  virtual void step(const std::vector<at::Tensor>& gradients, double learning_rate) = 0;
  /// What it keeps between steps, by name ("exp_avg.NAME"): to be saved, and to be written into.
  virtual NamedTensors state() const = 0;
  /// What state() was when it was saved; FormatError where that is of another optimizer or other tensors.
  /// With `part` the file may have more than that.
  virtual void restore(const SafetensorsFile& from, bool part);
};

/// By the arguments' `optim`; UsageError that lists the known ones.
std::unique_ptr<Optimizer> make_optimizer(const TrainingArguments& arguments,
                                          const std::vector<Trained>& tensors);
/// Overwrites an optimizer's state; FormatError unless `from` has those tensors and no others, or with `part`
/// those tensors at least.
void restore(const NamedTensors& state, const SafetensorsFile& from, bool part = false);

/// Those that the arguments name, or this process alone.
std::shared_ptr<ProcessGroup> processes_of(const TrainingArguments& arguments);

/// torch.nn.utils.clip_grad_norm_: scales the gradients, in place, to a norm of at most `max_norm`. Gives the
/// norm before.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& gradients, double max_norm);

}  // namespace graft::train
