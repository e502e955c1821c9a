// A training step in one graph that holds less: what its backward part can cheaply compute again does not
// wait for it.
//
//   %2 = aten::silu(%1)              %2 = aten::silu(%1)
//   %3 = loss of %2          ->      %3 = loss of %2
//   %4 = aten::mul(%3, %2)           graft::boundary()
//                                    %5 = aten::silu(%1)
//                                    %4 = aten::mul(%3, %5)
//
// Nothing is fused or found to be the same across the boundary.
#pragma once
#include "ir/graph.h"

namespace graft::autograd {

/// The first `forward_results` results are the forward part's. Inputs and results stay as they are.
ir::Graph with_recomputation(const ir::Graph& step, size_t forward_results);

}  // namespace graft::autograd
