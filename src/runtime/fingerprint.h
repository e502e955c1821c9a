// What was in a tensor's memory, by hashes: whether it still is. Samples of it are looked at in every call,
// all of it part by part in a bounded number of calls.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace graft::runtime {

class Fingerprint {
 public:
  /// How much is read: the samples follow from how much work a call does with the tensor anyway.
  struct Effort {
    int64_t uses = 1;           ///< of each element in a call, as the rows of a product are
    int64_t part_bytes = 4096;  ///< of which a part consists; 0: samples are all
  };

  /// Reads all of it, if there are parts. The tensor's elements alone: what lies between them may be others'.
  Fingerprint(const at::Tensor& tensor, const Effort& effort);

  /// Of a tensor of the same sizes and strides.
  bool samples_agree(const at::Tensor& tensor) const;
  bool part_agrees(const at::Tensor& tensor, size_t part) const;
  size_t parts() const { return parts_.size(); }

 private:
  const char* address(const char* data, int64_t place) const;
  uint64_t hash_samples(const char* data) const;
  template <class Add>
  void each_run(const char* data, int64_t begin, int64_t end, Add add) const;
  uint64_t hash_part(const char* data, size_t part) const;

  /// The memory, in its order: runs of bytes, at distances.
  struct Outer {
    int64_t bytes, count;
  };
  std::vector<Outer> outer_;  // the outermost comes first
  int64_t run_ = 0, total_ = 0, part_bytes_ = 0;
  int64_t pages_ = 0;  // of which samples are taken; 0: of all
  uint64_t sampled_ = 0;
  std::vector<uint64_t> parts_;
};

}  // namespace graft::runtime
