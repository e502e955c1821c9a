// Parameters that are trained at some times and frozen at others.
#pragma once
#include <unordered_set>

namespace graft {

/// Derive a module from this beside torch::nn::Module, as adapters do, if requires_grad of its parameters
/// is switched on and off between calls. A compiled program then has gradients for all of them and gives
/// those that a call asks for, so that the change compiles nothing again.
class TrainedAtTimes {
 public:
  virtual ~TrainedAtTimes() = default;
};

/// Whoever switches requires_grad of such a parameter says so, before: a capture has it on for a while, also
/// where it is off, and must not undo what the captured code does.
void will_switch(const void* parameter);

/// The parameters that this thread switches while one lives; each of several that live hears of all.
class SwitchesSeen {
 public:
  SwitchesSeen();
  ~SwitchesSeen();
  SwitchesSeen(const SwitchesSeen&) = delete;
  SwitchesSeen& operator=(const SwitchesSeen&) = delete;
  bool contains(const void* parameter) const { return switched_.contains(parameter); }

 private:
  friend void will_switch(const void* parameter);
  std::unordered_set<const void*> switched_;
  SwitchesSeen* before_;
};

}  // namespace graft
