// Whether a tensor is the one of the last call, unchanged: what was made from it then still holds.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "runtime/training_watch.h"

namespace graft::runtime {

/// A tensor is known by its memory and its version: who writes through a raw pointer or data() must not
/// expect to be noticed, but for an optimizer: a tensor that gradients are computed for is always another
/// one. The memory is not kept alive, but no other tensor can be taken for it once it is gone.
class SeenTensor {
 public:
  void see(const at::Tensor& tensor) {
    storage_.reset();
    trained_.reset();
    if (tensor.is_inference() || (tensor.requires_grad() && !tensor.is_leaf())) return;
    if (tensor.requires_grad()) trained_ = watch_for_gradients(tensor);
    storage_.emplace(tensor.storage().getWeakStorageImpl());
    data_ = tensor.const_data_ptr();
    version_ = tensor._version();
  }

  /// Never for an inference tensor: it has no version to go by.
  bool is(const at::Tensor& tensor) const {
    return storage_ && !tensor.is_inference() &&
           storage_->_unsafe_get_target() == tensor.storage().unsafeGetStorageImpl() &&
           data_ == tensor.const_data_ptr() && version_ == tensor._version() &&
           tensor.requires_grad() == (trained_ != nullptr) && !is_in_training(tensor);
  }

  /// Whether it may change before the next call without anybody's notice.
  bool is_in_training(const at::Tensor& tensor) const {
    return trained_ && tensor.requires_grad() && (*trained_ || tensor.grad().defined());
  }

 private:
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage_;
  std::shared_ptr<const std::atomic<bool>> trained_;  ///< of a tensor that requires a gradient
  const void* data_ = nullptr;
  int64_t version_ = 0;
};

}  // namespace graft::runtime
