// Who sees the calls of operators that code on this thread makes: one dispatch key, below autograd, leads to
// it. Another one, above all else, leads to those who ask for it.
#pragma once
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace graft {

// Free in programs without Python: it is where the C++ fake tensors of a Python process would be.
inline constexpr c10::DispatchKey record_key = c10::DispatchKey::Fake;

// The first that a call meets: nothing of it has happened. For tests of torch's own, says its name.
inline constexpr c10::DispatchKey first_key = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Runs a call as if nobody watched it.
inline void call_below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  const c10::impl::ExcludeDispatchKeyGuard off{c10::DispatchKeySet(record_key)};
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, record_key), &stack);
}

/// Plain calls of a watcher's own: neither watched nor seen by autograd.
struct UnrecordedCalls {
  c10::impl::ExcludeDispatchKeyGuard unwatched{c10::DispatchKeySet(record_key)};
  at::AutoDispatchBelowADInplaceOrView below;
};

class CallWatcher {
 public:
  /// That of this thread; null if there is none.
  static CallWatcher* current();

  CallWatcher(const CallWatcher&) = delete;
  CallWatcher& operator=(const CallWatcher&) = delete;

  /// Leaves the results on the stack, in place of the arguments.
  virtual void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) = 0;
  /// A call begins: autograd has not looked at its arguments yet. It must be passed on, by pass_first().
  virtual void on_first(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
  /// The code (not an operator) asks for a pointer that it can write through, to memory that is watched.
  virtual void on_pointer(c10::StorageImpl* storage) = 0;

 protected:
  CallWatcher() = default;
  virtual ~CallWatcher();
  /// One per thread. `from_the_first`: on_first() is asked as well.
  void begin(bool from_the_first = false);
  void end();
  /// on_first() is asked from now on.
  static void watch_from_the_first() { c10::impl::tls_set_dispatch_key_included(first_key, true); }
  static void pass_first(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
};

/// While one lives, the watcher is told when code takes the pointer of these tensors. (Pointers that can only
/// be read are not noticed; nor with versions of torch before 2.13.)
class PointerWatch {
 public:
  PointerWatch() = default;
  ~PointerWatch() { clear(); }
  PointerWatch(const PointerWatch&) = delete;
  PointerWatch& operator=(const PointerWatch&) = delete;

  void add(const at::Tensor& tensor);
  void clear();

 private:
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> watched_;
};

}  // namespace graft
