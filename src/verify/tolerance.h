// The first judge: whether two tensors are equal up to a tolerance. It needs nothing but the two.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "ir/graph.h"

namespace graft::verify {

/// Empty when `got` (compiled code's) is `want` (the eager function's) up to the rounding that another order
/// of operations may cause; else what differs, as a clause. Numbers: the largest difference may be a fraction
/// of the largest value, by the coarser of their dtype and the one that they were `computed_in`, and in each
/// row a few times that fraction of the row's own largest; whole numbers and flags must be the same, NaN and
/// infinities must be in the same places.
std::string difference(const at::Tensor& got, const at::Tensor& want,
                       at::ScalarType computed_in = at::kDouble);

/// Of tensors of the same shape: the fraction of elements, from 0 to 1, that differ by more than that
/// tolerance.
double fraction_differing(const at::Tensor& got, const at::Tensor& want,
                          at::ScalarType computed_in = at::kDouble);

/// At a kink (ReLU's gradient near 0) so many elements may differ by how memory was laid out.
constexpr double max_fraction_at_kinks = 0.01;

/// The floating dtype of a graph's values that rounds the most: its results are no better than that.
at::ScalarType coarsest_dtype(const ir::Graph& graph);

/// The tensor with two dimensions, one row after the other: a row is the last dimension, or as many as make
/// enough elements that the largest of them means something.
at::Tensor in_rows(const at::Tensor& tensor);

/// 0 where an element is finite; else a number that stands for NaN, infinity or minus infinity.
at::Tensor nonfinite_codes(const at::Tensor& values);

}  // namespace graft::verify
