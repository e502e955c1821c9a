#include "capture/placeholder_run.h"

#include "capture/call_watcher.h"
#include "capture/op_facts.h"

namespace graft {

PlaceholderRunState::PlaceholderRunState()
    : keys_(c10::impl::tls_local_dispatch_key_set()),
      was_multithreaded_(c10::AutogradState::get_tls_state().get_multithreading_enabled()),
      was_caching_casts_(at::autocast::is_autocast_cache_enabled()) {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  at::autocast::set_autocast_cache_enabled(false);
}

PlaceholderRunState::~PlaceholderRunState() {
  at::autocast::set_autocast_cache_enabled(was_caching_casts_);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(was_multithreaded_);
  c10::impl::_force_tls_local_dispatch_key_set(keys_);
}

c10::DispatchKeySet skip_autograd() {
  auto local = c10::impl::tls_local_dispatch_key_set();
  const auto before = local.excluded_;
  local.excluded_ = before | c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  c10::impl::_force_tls_local_dispatch_key_set(local);
  return before;
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
