// A product with a weight that stays the same from call to call: the weight is laid out once as the device's
// library likes it best, and again when it changes.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>

#include "cache/choices.h"
#include "runtime/epilogue.h"
#include "runtime/tensor_stamp.h"

namespace graft {

class PackedProduct {
 public:
  virtual ~PackedProduct() = default;
  PackedProduct(const PackedProduct&) = delete;
  PackedProduct& operator=(const PackedProduct&) = delete;

  /// From now on the results are passed through the function, in the product itself; false, and nothing
  /// changes, where that cannot be done or is no faster than a pass of its own.
  bool join(runtime::Epilogue epilogue, const cache::Measuring& how = {}) {
    if (!joins(epilogue, how)) return false;
    epilogue_ = epilogue;
    return true;
  }

  /// Where changes of the weight are looked for, besides its version: in samples of it in each call, and in
  /// parts of so many bytes in turn (check_next_part). Without it the weight is the program's own.
  void watch(int64_t part_bytes) { effort_ = {.uses = rows_, .part_bytes = part_bytes}; }

  /// A weight laid out.
  struct Packed {
    at::Tensor tensor;
    runtime::TensorStamp stamp;
  };
  /// The weight as it is now; null where there is no telling when it changes: then a product is a plain one.
  std::shared_ptr<const Packed> packed_for(const at::Tensor& weight);
  /// The next one to ask has the weight laid out again.
  void forget();

  /// The bias may be undefined. Threads may call at once.
  at::Tensor run(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return run(x, weight, bias, packed_for(weight).get());
  }
  at::Tensor run(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                 const Packed* packed) const;
  /// The same by plain operators.
  at::Tensor run_plain(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const;

 protected:
  PackedProduct(int64_t rows, int64_t in, int64_t out, runtime::Epilogue epilogue = runtime::Epilogue::none)
      : rows_(rows), in_(in), out_(out), epilogue_(epilogue) {}
  /// Whether it can, and is faster so.
  virtual bool joins(runtime::Epilogue, const cache::Measuring&) const { return false; }
  virtual at::Tensor pack(const at::Tensor& weight) const = 0;
  virtual at::Tensor multiply(const at::Tensor& x, const at::Tensor& packed, const at::Tensor& weight,
                              const at::Tensor& bias, runtime::Epilogue epilogue) const = 0;
  int64_t rows() const { return rows_; }
  int64_t in() const { return in_; }
  int64_t out() const { return out_; }

 private:
  int64_t rows_, in_, out_;
  runtime::Epilogue epilogue_;
  std::optional<runtime::Fingerprint::Effort> effort_;
  std::mutex guard_;    // of packed_
  std::mutex packing_;  // one at a time
  std::shared_ptr<const Packed> packed_;
};

}  // namespace graft
