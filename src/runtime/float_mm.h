// graft::float_mm(a, b, added, dtype): a product in floats of matrices that may be halves in memory.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace graft::runtime {

/// a [m, k] times b [k, n], plus what is added [m, n]: all of it in floats, rounded once, to the dtype.
at::Tensor float_mm(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& added,
                    at::ScalarType dtype);
/// Into a tensor of that dtype, which may be the one that is added.
at::Tensor& float_mm_into(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& added,
                          at::ScalarType dtype, at::Tensor& out);

}  // namespace graft::runtime
