// Tensors whose memory a Residency may have taken away, there while they are used.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "support/residency.h"

namespace graft::runtime {

inline std::vector<const void*> residency_keys(const std::vector<at::Tensor>& tensors) {
  std::vector<const void*> keys;
  keys.reserve(tensors.size());
  for (const auto& tensor : tensors)
    if (tensor.defined() && tensor.has_storage()) keys.push_back(tensor.storage().unsafeGetStorageImpl());
  return keys;
}

class Present {
 public:
  explicit Present(const std::vector<at::Tensor>& tensors) : residency_(Residency::current()) {
    if (!residency_) return;
    keys_ = residency_keys(tensors);
    residency_->enter(keys_);
  }
  ~Present() {
    if (residency_) residency_->leave(keys_);
  }
  Present(const Present&) = delete;
  Present& operator=(const Present&) = delete;

 private:
  Residency* residency_;
  std::vector<const void*> keys_;
};

}  // namespace graft::runtime
