// What code that runs over placeholders needs, whoever watches it.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <stdexcept>

namespace graft {

/// While one lives, calls on this thread go past autograd: they make no history, and change no version.
class BelowAutograd {
 public:
  BelowAutograd();
  ~BelowAutograd();
  BelowAutograd(const BelowAutograd&) = delete;
  BelowAutograd& operator=(const BelowAutograd&) = delete;

 private:
  c10::DispatchKeySet switched_off_;
};

/// Which dispatch keys are switched off on the thread is afterwards as it was. (torch's guards put back all
/// that they found, also what a BelowAutograd had switched off that is gone by then.)
class KeptDispatchKeys {
 public:
  KeptDispatchKeys() : off_(c10::impl::tls_local_dispatch_key_set().excluded_) {}
  ~KeptDispatchKeys() {
    auto local = c10::impl::tls_local_dispatch_key_set();
    local.excluded_ = off_;
    c10::impl::_force_tls_local_dispatch_key_set(local);
  }
  KeptDispatchKeys(const KeptDispatchKeys&) = delete;
  KeptDispatchKeys& operator=(const KeptDispatchKeys&) = delete;

 private:
  c10::DispatchKeySet off_;
};

/// Ends code midway that cannot run so.
struct CannotBeReplayed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A call that stands in no trace under its name: one about sizes and types is made, one that consists of
/// others calls those. False for the rest.
bool calls_no_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);

}  // namespace graft
