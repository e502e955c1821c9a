// Several LoRA adapters on one layer at inference, each on the rows that chose it: graft::low_rank_add, and
// the two halves of it, of which the first can be done at once for all layers that read the same.
#pragma once
#include <ATen/core/Tensor.h>

namespace graft::runtime {

/// y [rows, out] plus scaling B A x [rows, in] of the adapters that the routing table [batch, slot] gives a
/// row; each of the batch has rows / batch rows in turn. In the dtype of the adapters, rounded once to y's.
/// `out` may be y. `places`: the column of y from which on each adapter adds, where y is the products of
/// several layers side by side; empty: all of y. By operators that every device has.
at::Tensor& low_rank_add_into(const at::Tensor& y, const at::Tensor& x, at::TensorList a, at::TensorList b,
                              at::TensorList scaling, const at::Tensor& table, at::IntArrayRef slots,
                              at::IntArrayRef places, at::Tensor& out);

/// graft::low_rank_lower: scaling A x, the adapters side by side; whatever it is on rows that did not choose
/// one.
at::Tensor& low_rank_lower_into(const at::Tensor& x, at::TensorList a, at::TensorList scaling,
                                const at::Tensor& table, at::IntArrayRef slots, at::Tensor& out);

/// graft::low_rank_lift: y plus B t, of the adapters whose columns of t begin at `columns`.
at::Tensor& low_rank_lift_into(const at::Tensor& y, const at::Tensor& t, at::TensorList b,
                               const at::Tensor& table, at::IntArrayRef slots, at::IntArrayRef columns,
                               at::IntArrayRef places, at::Tensor& out);

/// The columns of t in which each adapter's begin.
std::vector<int64_t> columns_between(at::TensorList a);

}  // namespace graft::runtime
