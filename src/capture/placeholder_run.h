// What a thread's state must be while code runs over placeholders, whoever watches it.
#pragma once
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace graft {

/// While one lives, no cast is cached (it would be a placeholder, and found by other code), and a backward
/// pass runs on this thread, whose calls are watched. Afterwards all is as it was, dispatch keys, too:
/// torch's own guards put back what they found when they began.
class PlaceholderRunState {
 public:
  PlaceholderRunState();
  ~PlaceholderRunState();
  PlaceholderRunState(const PlaceholderRunState&) = delete;
  PlaceholderRunState& operator=(const PlaceholderRunState&) = delete;

  /// Those that the run began with.
  const c10::impl::LocalDispatchKeySet& keys() const { return keys_; }

 private:
  c10::impl::LocalDispatchKeySet keys_;
  bool was_multithreaded_, was_caching_casts_;
};

/// Calls on this thread go past autograd from now on: they make no history, and change no version. Gives the
/// dispatch keys that were switched off before.
c10::DispatchKeySet skip_autograd();

/// A call past autograd that stands in no trace under its name: one about sizes and types is made, one that
/// consists of others calls those. False for the rest.
bool calls_no_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);

}  // namespace graft
