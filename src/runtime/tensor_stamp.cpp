#include "runtime/tensor_stamp.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "graft/error.h"

namespace graft::runtime {
namespace {

std::atomic<uint64_t>& generation() {
  static std::atomic<uint64_t> number{0};
  return number;
}

}  // namespace

void invalidate_tensor_stamps() { ++generation(); }

TensorStamp::TensorStamp(const at::Tensor& tensor, const std::optional<Fingerprint::Effort>& effort) {
  if (!can_be_stamped(tensor)) return;
  generation_ = generation();
  if (tensor.requires_grad()) trained_ = watch_for_gradients(tensor);
  sizes_ = tensor.sizes().vec();
  strides_ = tensor.strides().vec();
  data_ = tensor.const_data_ptr();
  version_ = tensor._version();
  if (effort) fingerprint_ = std::make_shared<const Fingerprint>(tensor, *effort);
  storage_.emplace(tensor.storage().getWeakStorageImpl());
}

bool TensorStamp::is_same_memory(const at::Tensor& tensor) const {
  return storage_->_unsafe_get_target() == tensor.storage().unsafeGetStorageImpl() &&
         data_ == tensor.const_data_ptr() && tensor.sizes() == at::IntArrayRef(sizes_) &&
         tensor.strides() == at::IntArrayRef(strides_);
}

bool TensorStamp::matches(const at::Tensor& tensor) const {
  return storage_ && can_be_stamped(tensor) && generation_ == generation() && is_same_memory(tensor) &&
         version_ == tensor._version() && tensor.requires_grad() == (trained_ != nullptr) &&
         !is_in_training(tensor) && (!fingerprint_ || fingerprint_->samples_agree(tensor));
}

bool check_next_part(const std::vector<StampedTensor>& pairs, uint64_t turn) {
  uint64_t all = 0;
  for (const auto& pair : pairs) all += pair.stamp->parts();
  if (all == 0) return true;
  uint64_t part = turn % all;
  for (const auto& [stamp, tensor, name] : pairs) {
    if (part >= stamp->parts()) {
      part -= stamp->parts();
      continue;
    }
    if (stamp->part_agrees(*tensor, part)) return true;
    // Who writes into it at this moment has yet to say so by its version.
    for (int wait = 0; wait < 20; ++wait) {
      if (!stamp->matches(*tensor)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    throw Mismatch(
        "[compile] the weight \"" + *name +
        "\" has changed where neither its version nor samples of it show: a few elements were "
        "written through a raw pointer or data(). Results since then may be those of the weight as "
        "it was. Call graft::weights_changed(module) after such a change, or compile with "
        "CompileOptions::freeze = Freeze::off");
  }
  return true;
}

}  // namespace graft::runtime
