// Layers that read the same have the first halves of their adapters in common.
//
//   %5 = graft::low_rank_add(%q, %x, [%a], [%b], ..)        %7 = graft::low_rank_lower(%x, [%a, %c], ..)
//   %6 = graft::low_rank_add(%k, %x, [%c], [%d], ..)   ->   %5 = graft::low_rank_lift(%q, %7, [%b], .., [0])
//                                                           %6 = graft::low_rank_lift(%k, %7, [%d], .., [16])
#pragma once
#include "ir/graph.h"

namespace graft::passes {

/// For a target whose kernels are these halves.
void split_low_rank_adds(ir::Graph& graph, bool has_halves);

}  // namespace graft::passes
