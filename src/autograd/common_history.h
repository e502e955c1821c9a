// Which outputs of a graph have calls in common in their histories, whose backward needs something that was
// saved. Eager code lets go of it in the first backward pass that comes by, and a second one is an error.
//
//   joint(%0 "x", %1 "t0", %2 "t1")     y0 = exp(x).sin(), y1 = exp(x).cos()
//     %3 = aten::exp(%0)
//     %4 = aten::cos(%3)
//     %5 = aten::mul.Tensor(%1, %4)     t0 alone
//     %6 = aten::sin(%3)
//     %7 = aten::mul.Tensor(%2, %6)     t1 alone
//     %8 = aten::sub.Tensor(%5, %7)
//     %9 = aten::mul.Tensor(%8, %3)     both, and %3 was saved for it
#pragma once
#include <cstddef>
#include <vector>

#include "ir/graph.h"

namespace graft::autograd {

/// A flag for each pair of tangents (inputs of the joint graph); of one with itself: whether a backward pass
/// by it needs anything that was saved.
std::vector<std::vector<bool>> common_history(const ir::Graph& joint,
                                              const std::vector<size_t>& tangent_inputs);

}  // namespace graft::autograd
