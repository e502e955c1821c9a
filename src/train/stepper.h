// One step of training: from batches to changed tensors.
#pragma once
#include "train/subject.h"

namespace graft::train {

struct Stepped {
  double loss;
  std::optional<double> grad_norm = {};  ///< before clipping
  bool skipped = false;                  ///< a gradient overflowed: nothing was changed
};

class Stepper {
 public:
  virtual ~Stepper() = default;
  /// The loss is the mean over all labels of the batches, of which `counts` has the numbers and `labels` the
  /// sum over all processes. Number `number` is counted from 0.
  virtual Stepped step(const std::vector<ModelInputs>& batches, const std::vector<int64_t>& counts,
                       int64_t labels, double learning_rate, int64_t number) = 0;
  /// What the optimizer keeps, as Optimizer::state() names it, whoever does the step. All processes have to
  /// ask; the first is given all of it.
  virtual NamedTensors state() const = 0;
  virtual void restore(const SafetensorsFile& from) = 0;
};

/// The whole step as one compiled program where compile_step() can do it; else a compiled loss, its gradients
/// and an optimizer.
std::unique_ptr<Stepper> make_stepper(Subject& subject, const TrainingArguments& arguments);

}  // namespace graft::train
