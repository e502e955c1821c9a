// Removes calls whose results nobody uses. What must run (random draws, effects) stays.
//
//   %2 = aten::exp(%0)            ->
//   %3 = aten::neg(%0)                %3 = aten::neg(%0)
//   return (%3)                       return (%3)
#pragma once
#include "ir/graph.h"

namespace graft::passes {

void eliminate_dead_code(ir::Graph& graph);

}  // namespace graft::passes
