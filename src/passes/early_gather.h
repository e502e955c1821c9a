// Picks elements before the arithmetic on them instead of after it, so that only what is picked is computed.
//
//   %2: f32[5, 33] = aten::sub.Tensor(%0, %1)        ->   %3: f32[5, 1] = aten::gather(%0, 1, %index)
//   %3: f32[5, 1] = aten::gather(%2, 1, %index)           %4: f32[5, 1] = aten::sub.Tensor(%3, %1)
//
// Here %1: f32[5, 1] is the same along the dimension that is picked from. So a cross entropy needs the
// logarithms of the targets' probabilities alone, and those of all classes need not be stored to be read. A
// cast that is seen in another shape is passed, too: of logits in half precision no copy in floats is stored.
#pragma once
#include "ir/graph.h"

namespace graft::passes {

void gather_early(ir::Graph& graph);

}  // namespace graft::passes
