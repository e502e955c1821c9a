// Computes equal things once.
//
//   %2 = aten::exp(%0)            ->  %2 = aten::exp(%0)
//   %3 = aten::exp(%0)                %4 = aten::mul(%2, %2)
//   %4 = aten::mul(%2, %3)
//
// Calls that draw random numbers or act on the outside are never equal.
#pragma once
#include "ir/graph.h"

namespace graft::passes {

void merge_common_subexpressions(ir::Graph& graph);

}  // namespace graft::passes
