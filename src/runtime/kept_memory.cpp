#include "runtime/kept_memory.h"

#include <ATen/core/Tensor.h>

#include <atomic>

namespace graft::runtime {
namespace {

/// One look at both counts, where torch has that: between two looks another thread could turn a weak pointer
/// into a tensor. No weak pointers either: who has one could get the memory back, or take the next result for
/// the tensor that it knew.
template <class Pointer>
bool has_no_other_owner(const Pointer& storage) {
  if constexpr (requires { storage.is_uniquely_owned(); }) {
    return storage.is_uniquely_owned();
  } else {
    const bool alone = storage.use_count() == 1 && storage.weak_use_count() == 1 && storage.use_count() == 1;
    std::atomic_thread_fence(std::memory_order_acquire);  // what other threads did with it is over
    return alone;
  }
}

}  // namespace

bool KeptMemory::is_free(const Device& device) const {
  if (!storage_ || !has_no_other_owner(storage_)) return false;
  const auto& memory = storage_->data_ptr();
  return storage_->nbytes() == bytes_ && memory.get() == data_ && memory.get_context() == context_ &&
         memory.device() == device.place();
}

void KeptMemory::keep(c10::Storage storage) {
  storage_ = c10::intrusive_ptr<c10::StorageImpl>::reclaim(storage.unsafeReleaseStorageImpl());
  bytes_ = storage_->nbytes();
  data_ = storage_->data_ptr().get();
  context_ = storage_->data_ptr().get_context();
}

c10::Storage KeptMemory::take(int64_t bytes, const Device& device) {
  if (bytes_ != static_cast<size_t>(bytes) || !is_free(device)) keep(device.allocate(bytes).storage());
  return share();
}

}  // namespace graft::runtime
