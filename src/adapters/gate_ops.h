// Operators by which the choice of adapters enters a program as data.
//
// They are what `where` would be, and say one thing more: which slots the mask is of. If no row has chosen
// one of them, what was computed for them is not needed, and the compiler lets the program leave it out
// (codegen/predicates.h).
#pragma once
#include <ATen/core/Tensor.h>

namespace graft::adapters {

/// `value` where the mask is true, else zero. The mask broadcasts to it, and is false wherever the routing
/// table [row, slot] has none of `slots`.
at::Tensor gate_keep(const at::Tensor& mask, const at::Tensor& value, const at::Tensor& table,
                     at::IntArrayRef slots);
/// `made` where the mask is true, else `old`; both have the result's shape.
at::Tensor gate_put(const at::Tensor& mask, const at::Tensor& made, const at::Tensor& old,
                    const at::Tensor& table, at::IntArrayRef slots);

}  // namespace graft::adapters
