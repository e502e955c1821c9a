// Parameters that are trained at some times and frozen at others.
#pragma once
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace graft {

/// Derive a module from this beside torch::nn::Module, as adapters do, if requires_grad of its parameters
/// goes on and off between calls. A compiled program then has gradients for all of them and gives those that
/// a call asks for, so that the change compiles nothing again.
class TrainedAtTimes {
 public:
  virtual ~TrainedAtTimes() = default;
};

/// Parameters that are frozen require gradients while one lives, so that a graph has these. Those that the
/// same thread switches by set_trained() meanwhile stay as it says.
class TrainedForNow {
 public:
  explicit TrainedForNow(std::vector<at::Tensor> frozen)
      : parameters_(std::move(frozen)), before_(std::exchange(innermost(), this)) {
    for (const auto& parameter : parameters_) parameter.set_requires_grad(true);
  }
  ~TrainedForNow() {
    innermost() = before_;
    for (const auto& parameter : parameters_) parameter.set_requires_grad(false);
  }
  TrainedForNow(const TrainedForNow&) = delete;
  TrainedForNow& operator=(const TrainedForNow&) = delete;
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  friend void set_trained(const at::Tensor& parameter, bool on);
  static TrainedForNow*& innermost() {
    thread_local TrainedForNow* now = nullptr;
    return now;
  }
  std::vector<at::Tensor> parameters_;
  TrainedForNow* before_;
};

/// Switches requires_grad of a parameter that is trained at times.
inline void set_trained(const at::Tensor& parameter, bool on) {
  for (auto* now = TrainedForNow::innermost(); now; now = now->before_)
    std::erase_if(now->parameters_, [&](const at::Tensor& each) { return each.is_same(parameter); });
  parameter.set_requires_grad(on);
}

}  // namespace graft
