// Operators made of simpler ones are replaced by those, so that they can become part of kernels: aten ->
// core.
//
//   %y = aten::_softmax(%x, dim=-1)   ->   %m = aten::amax(%x), %e = aten::exp(%x - %m), %y = %e /
//   aten::sum(%e)
//
// Core operators are ATen's own, so a graph can be run over ATen before and after.
#pragma once
#include "ir/graph.h"

namespace graft::decomp {

/// The type of every value that is used stays what it was.
void decompose(ir::Graph& graph);

}  // namespace graft::decomp
