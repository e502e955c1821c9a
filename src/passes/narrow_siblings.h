// Products of one matrix with several narrow ones are one product with all of them side by side.
//
//   %2 = aten::mm(%x, t(%a))        %4 = aten::mm(%x, t(cat(%a, %b)))
//   %3 = aten::mm(%x, t(%b))   ->   %2 = %4[:, :8],  %3 = %4[:, 8:]
//
// This is what the adapters of q, k and v are: each reads the whole of x for a few columns.
#pragma once
#include "ir/graph.h"

namespace graft::passes {

/// Those with at most so many columns: a wider one reads enough of its own weight to be worth a call.
void join_narrow_siblings(ir::Graph& graph, int64_t width);

}  // namespace graft::passes
