// Whether a tensor is the one of the last call, unchanged: what was made from it then still holds.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/fingerprint.h"
#include "runtime/training_watch.h"

namespace graft::runtime {

/// A tensor is known by its memory, its version, and samples of what is in it, since much is written past the
/// version: through data(), by torch's C++ optimizers, through memory that another tensor shares. A tensor
/// that gradients are computed for is always another one. The memory is not kept alive, but no other tensor
/// can be taken for it once it is gone.
class TensorStamp {
 public:
  /// Matches no tensor.
  TensorStamp() = default;

  /// Made before the tensor is read: what is made of it may be kept only if the stamp still matches
  /// afterwards. Without an effort nobody else can write into the tensor, and its version will do.
  TensorStamp(const at::Tensor& tensor, const std::optional<Fingerprint::Effort>& effort);

  /// Whether there is a way to see that it changes.
  static bool can_be_stamped(const at::Tensor& tensor) {
    return !tensor.is_inference() && (!tensor.requires_grad() || tensor.is_leaf());
  }

  bool matches(const at::Tensor& tensor) const;

  /// Whether it may change before the next call without anybody's notice.
  bool is_in_training(const at::Tensor& tensor) const {
    return trained_ && tensor.requires_grad() && (*trained_ || (tensor.is_leaf() && tensor.grad().defined()));
  }

  size_t parts() const { return fingerprint_ ? fingerprint_->parts() : 0; }
  /// Of a tensor that it matches. False: somewhere else it has changed after all.
  bool part_agrees(const at::Tensor& tensor, size_t part) const {
    return fingerprint_->part_agrees(tensor, part);
  }

 private:
  bool is_same_memory(const at::Tensor& tensor) const;

  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage_;
  std::shared_ptr<const std::atomic<bool>> trained_;  ///< of a tensor that requires a gradient
  std::shared_ptr<const Fingerprint> fingerprint_;
  std::vector<int64_t> sizes_, strides_;
  const void* data_ = nullptr;
  int64_t version_ = 0;
  uint64_t generation_ = 0;
};

/// What was made from any tensor is to be made again.
void invalidate_tensor_stamps();

/// What of weights is looked at exactly in each call, in turn: all of it within so many calls.
constexpr int64_t kCallsForAll = 2048, kSmallestPart = 4096;
inline int64_t part_of_all(int64_t bytes) { return std::max(bytes / kCallsForAll, kSmallestPart); }

/// A tensor with the stamp that it had, and its name for errors.
struct StampedTensor {
  const TensorStamp* stamp;
  const at::Tensor* tensor;
  const std::string* name;
};

/// Looks at the part of number `turn` (of all parts of all pairs, in a circle). True if it is as it was,
/// false if one of the tensors is another by now, which happens while somebody writes into it. Mismatch if
/// its version and its samples are the same and it was changed all the same.
bool check_next_part(const std::vector<StampedTensor>& pairs, uint64_t turn);

}  // namespace graft::runtime
