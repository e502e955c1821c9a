// Tensors made in the likeness of another are made from their size alone, so that the other need not be kept.
//
//   %2: f32[3] = aten::zeros_like(%0)   ->   %2: f32[3] = aten::full(size=[3], fill_value=0, dtype=f32,
//   device=@cpu)
//
// Only those whose result is row-major: aten::full makes no other.
#pragma once
#include "ir/graph.h"

namespace graft::passes {

void make_creation_plain(ir::Graph& graph);

}  // namespace graft::passes
