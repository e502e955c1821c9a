// The backward graph of a call some of whose outputs nobody used.
//
// Their tangents are not zeros but absent, as in eager code: what would be computed from them alone is not
// computed, and is not NaN where it meets an infinity; what has a gradient through them alone has none.
//
//   backward(%0 "x", %1 "t0", %2 "t1")              without t1
//     %3 = aten::mul.Tensor(%1, %0)                   %3 = aten::mul.Tensor(%1, %0)
//     %4 = aten::exp(%2)
//     %5 = aten::add.Tensor(%3, %4)                   return (%3, None)
//     return (%5, %4)
#pragma once
#include <cstddef>
#include <vector>

#include "ir/graph.h"

namespace graft::autograd {

struct WithoutTangents {
  /// The same inputs but for the absent tangents, then one for each of `zeros`.
  ir::Graph graph;
  /// What joins present and absent values (a cat) takes these for the absent ones: all of them 0.
  std::vector<ir::TensorType> zeros;
};

/// The last inputs of the graph are its tangents; `absent` has a flag for each.
WithoutTangents without_tangents(const ir::Graph& backward, const std::vector<bool>& absent);

}  // namespace graft::autograd
