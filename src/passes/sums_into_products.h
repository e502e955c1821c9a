// A sum of two matrix products is one product added onto the other, in its memory.
//
//   %2 = aten::mm(%x, %w)        %2 = aten::mm(%x, %w)
//   %3 = aten::mm(%t, %b)   ->   %4 = aten::addmm(%2, %t, %b)
//   %4 = aten::add(%2, %3)
//
// The one with the longer inner dimension is computed first: what an adapter adds to a layer has the shorter
// one. Reshapes between the products and the sum are looked through.
#pragma once
#include "ir/graph.h"

namespace graft::passes {

void fold_sums_into_products(ir::Graph& graph);

}  // namespace graft::passes
