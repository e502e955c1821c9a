#include "adapters/sparse_rows.h"

#include <ATen/ATen.h>

namespace graft::adapters {

at::Tensor row_starts(const at::Tensor& rows, int64_t count) {
  return at::searchsorted(rows.contiguous(), at::arange(count, rows.options()));
}

/// A sum over chosen rows of x' with weights, for each output, which is what an embedding bag is.
at::Tensor sparse_linear(const at::Tensor& x, const at::Tensor& columns, const at::Tensor& starts,
                         const at::Tensor& values) {
  const auto rows = x.reshape({-1, x.size(-1)}).t().contiguous();
  const auto sums = std::get<0>(at::embedding_bag(rows, columns, starts, /*scale_grad_by_freq=*/false,
                                                  /*mode=sum*/ 0, /*sparse=*/false, values));
  auto shape = x.sizes().vec();
  shape.back() = starts.size(0);
  return sums.t().reshape(shape);
}

}  // namespace graft::adapters
