// Which tensors an optimizer was made for. Adapters may be set, deleted, merged or loaded at any time: then
// other tensors are in training than those that the optimizer has.
#pragma once
#include <string>
#include <unordered_map>

#include "train/subject.h"

namespace graft::train {

class TrainedSet {
 public:
  /// UsageError where there is nothing to train.
  explicit TrainedSet(const Subject& subject);

  /// Whether the very same are in training.
  bool is_of(const Subject& subject) const;
  /// UsageError that names a tensor which this set has not. Some of the set may be frozen meanwhile where
  /// `may_freeze`: nothing happens to those, as in torch's optimizers.
  void check(const Subject& subject, bool may_freeze) const;

 private:
  struct Known {
    at::Tensor tensor;
    at::ScalarType dtype;
    at::Device device;
    bool is(const at::Tensor& other) const {
      return tensor.is_same(other) && dtype == other.scalar_type() && device == other.device();
    }
  };
  std::unordered_map<std::string, Known> known_;
};

}  // namespace graft::train
