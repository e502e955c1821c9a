// Whether a tensor is the one of the last call, unchanged: what was made from it then still holds.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace graft::runtime {

/// A tensor is known by its memory and its version: who writes through a raw pointer must not expect to be
/// noticed. The memory is not kept alive, but no other tensor can be taken for it once it is gone.
class SeenTensor {
 public:
  void see(const at::Tensor& tensor) {
    storage_.reset();
    if (tensor.is_inference()) return;
    storage_.emplace(tensor.storage().getWeakStorageImpl());
    data_ = tensor.const_data_ptr();
    version_ = tensor._version();
  }

  /// Never for an inference tensor: it has no version to go by.
  bool is(const at::Tensor& tensor) const {
    return storage_ && !tensor.is_inference() &&
           storage_->_unsafe_get_target() == tensor.storage().unsafeGetStorageImpl() &&
           data_ == tensor.const_data_ptr() && version_ == tensor._version();
  }

 private:
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage_;
  const void* data_ = nullptr;
  int64_t version_ = 0;
};

}  // namespace graft::runtime
