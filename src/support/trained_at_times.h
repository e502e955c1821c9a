// Parameters that are trained at some times and frozen at others.
#pragma once

namespace graft {

/// Derive a module from this beside torch::nn::Module, as adapters do, if requires_grad of its parameters
/// goes on and off between calls. A compiled program then has gradients for all of them and gives those that
/// a call asks for, so that the change compiles nothing again.
class TrainedAtTimes {
 public:
  virtual ~TrainedAtTimes() = default;
};

}  // namespace graft
