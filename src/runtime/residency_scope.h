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

class ResidencyScope {
 public:
  explicit ResidencyScope(const std::vector<at::Tensor>& tensors) : residency_(Residency::current()) {
    if (!residency_) return;
    keys_ = residency_keys(tensors);
    residency_->enter(keys_);
  }
  ~ResidencyScope() {
    if (residency_) residency_->leave(keys_);
  }
  ResidencyScope(const ResidencyScope&) = delete;
  ResidencyScope& operator=(const ResidencyScope&) = delete;

 private:
  Residency* residency_;
  std::vector<const void*> keys_;
};

}  // namespace graft::runtime
