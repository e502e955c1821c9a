// Matrix products of ATen into memory that is there.
#pragma once
#include <ATen/core/Tensor.h>

namespace graft::cpu {

/// out = a b
void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
/// out = beta * added + alpha * a b; `added` broadcasts, or is `out` itself.
void multiply_and_add_into(const at::Tensor& out, const at::Tensor& added, const at::Tensor& a,
                           const at::Tensor& b, double beta, double alpha);

}  // namespace graft::cpu
