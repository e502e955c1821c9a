#include "capture/placeholder_run.h"

#include "capture/call_watcher.h"
#include "capture/op_facts.h"

namespace graft {

BelowAutograd::BelowAutograd() {
  auto local = c10::impl::tls_local_dispatch_key_set();
  switched_off_ = c10::autograd_dispatch_keyset_with_ADInplaceOrView - local.excluded_;
  local.excluded_ = local.excluded_ | switched_off_;
  c10::impl::_force_tls_local_dispatch_key_set(local);
}

BelowAutograd::~BelowAutograd() {
  auto local = c10::impl::tls_local_dispatch_key_set();
  local.excluded_ = local.excluded_ - switched_off_;
  c10::impl::_force_tls_local_dispatch_key_set(local);
}

bool calls_no_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  if (computes_nothing(op, std::span(stack).last(op.schema().arguments().size()))) {
    call_below(op, keys, stack);
    return true;
  }
  // Above autograd's keys such a call never gets here: its parts do.
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) return false;
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, stack);
  return true;
}

}  // namespace graft
