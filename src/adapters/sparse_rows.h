// Products with a sparse matrix whose entries are trained.
#pragma once
#include <ATen/core/Tensor.h>

namespace graft::adapters {

/// Where each of `count` rows starts among entries in the order of their rows.
at::Tensor row_starts(const at::Tensor& rows, int64_t count);

/// x [..., in] times the transpose of the matrix [starts.size(0), in] with `values` at `columns`, row after
/// row.
at::Tensor sparse_linear(const at::Tensor& x, const at::Tensor& columns, const at::Tensor& starts,
                         const at::Tensor& values);

}  // namespace graft::adapters
