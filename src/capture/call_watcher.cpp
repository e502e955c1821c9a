#include "capture/call_watcher.h"

#include <torch/library.h>

namespace graft {
namespace {

thread_local CallWatcher* watcher = nullptr;

void watched_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (watcher)
    watcher->on_call(op, keys, stack);
  else
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, record_key), stack);
}

void first_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&first_call>());
}

TORCH_LIBRARY_IMPL(_, Fake, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&watched_call>()); }

void redispatch_first(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, first_key), stack);
}

void first_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (watcher)
    watcher->on_first(op, keys, stack);
  else
    redispatch_first(op, keys, stack);
}

/// Called by torch where somebody asks for a pointer to write through.
void pointer_taken(c10::StorageImpl* storage) {
  // Operators do so all the time, and below the watcher's key.
  if (watcher && !c10::impl::tls_is_dispatch_key_excluded(record_key)) watcher->on_pointer(storage);
}

/// False where this torch cannot tell, or somebody else is told already.
template <class Storage>
bool watch(Storage& storage) {
  if constexpr (requires { storage.set_materializer(&pointer_taken); }) {
    if (storage.has_materializer()) return false;
    storage.set_materializer(&pointer_taken);
    return true;
  }
  return false;
}

template <class Storage>
void unwatch(Storage& storage) {
  if constexpr (requires { storage.clear_materializer(); }) storage.clear_materializer();
}

}  // namespace

CallWatcher* CallWatcher::current() { return watcher; }

CallWatcher::~CallWatcher() { end(); }

void CallWatcher::on_first(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                           torch::jit::Stack* stack) {
  redispatch_first(op, keys, stack);
}

void CallWatcher::pass_first(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                             torch::jit::Stack* stack) {
  redispatch_first(op, keys, stack);
}

void CallWatcher::begin(bool from_the_first) {
  TORCH_CHECK(!watcher, "a capture is already at work on this thread");
  c10::impl::tls_set_dispatch_key_included(record_key, true);
  c10::impl::tls_set_dispatch_key_included(first_key, from_the_first);
  watcher = this;
}

void CallWatcher::end() {
  if (watcher != this) return;
  watcher = nullptr;
  c10::impl::tls_set_dispatch_key_included(record_key, false);
  c10::impl::tls_set_dispatch_key_included(first_key, false);
}

void PointerWatch::add(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.has_storage() && watch(*tensor.storage().unsafeGetStorageImpl()))
    watched_.push_back(tensor.storage().getWeakStorageImpl());
}

void PointerWatch::clear() {
  for (const auto& storage : watched_)
    if (const auto alive = storage.lock()) unwatch(*alive);
  watched_.clear();
}

}  // namespace graft
