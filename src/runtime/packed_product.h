// A product with a weight that stays the same from call to call: the weight is laid out once as oneDNN or MKL
// like it best, and again when it changes.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>

#include "runtime/seen_tensor.h"

namespace graft {

class PackedProduct {
 public:
  /// For x [rows, in] times the transpose of a float weight [out, in]; null where no packed form is there or
  /// none is faster than a plain product, which is measured once per shape and process.
  static std::unique_ptr<PackedProduct> make(int64_t rows, int64_t in, int64_t out);

  virtual ~PackedProduct() = default;
  PackedProduct(const PackedProduct&) = delete;
  PackedProduct& operator=(const PackedProduct&) = delete;

  /// The bias may be undefined. Threads may call at once.
  at::Tensor run(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

 protected:
  explicit PackedProduct(int64_t rows) : rows_(rows) {}
  virtual at::Tensor pack(const at::Tensor& weight) const = 0;
  virtual at::Tensor multiply(const at::Tensor& x, const at::Tensor& packed, const at::Tensor& weight,
                              const at::Tensor& bias) const = 0;
  int64_t rows() const { return rows_; }

 private:
  at::Tensor packed_for(const at::Tensor& weight);

  int64_t rows_;
  std::mutex guard_;
  at::Tensor packed_;
  runtime::SeenTensor seen_;
};

}  // namespace graft
