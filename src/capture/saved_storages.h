// What was in memory before it is written to, to put it back.
#pragma once
#include <ATen/core/Tensor.h>

#include <unordered_map>

namespace graft {

class SavedStorages {
 public:
  /// The whole memory that the tensor lies in, the first time. Nothing for what is not strided.
  void save(const at::Tensor& tensor);
  void restore() const;

 private:
  struct Saved {
    at::Tensor bytes, before;  // the memory itself, and a copy
  };
  std::unordered_map<const c10::StorageImpl*, Saved> saved_;
};

}  // namespace graft
