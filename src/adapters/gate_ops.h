// Operators by which the choice of adapters enters a program as data.
//
// They are what `where` would be, and say one thing more: which slot the column is of. If no row has chosen
// that slot, what was computed for it is not needed, and the compiler lets the program leave it out
// (codegen/predicates.h).
#pragma once
#include <ATen/core/Tensor.h>

namespace graft::adapters {

/// `value` where the column is true, else zero. The column broadcasts to it.
at::Tensor gate_keep(const at::Tensor& column, const at::Tensor& value, int64_t slot);
/// `made` where the column is true, else `old`; both have the result's shape.
at::Tensor gate_put(const at::Tensor& column, const at::Tensor& made, const at::Tensor& old, int64_t slot);

}  // namespace graft::adapters
