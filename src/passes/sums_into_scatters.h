// A sum with what was added to zeros, at places that are data, adds there to the other summand.
//
//   %2 = aten::embedding_dense_backward(%g, %tokens)   ->   %3 = aten::index_add(%w, 0, %tokens, %g)
//   %3 = aten::add(%w, %2)
//
// A weight that is looked up in and multiplied with has its gradient from both: without this, three passes
// over memory of its size for a few of its rows.
#pragma once
#include "ir/graph.h"

namespace graft::passes {

void fold_sums_into_scatters(ir::Graph& graph);

}  // namespace graft::passes
