// A product in floats with one short side (the rank of an adapter), between matrices that are halves in
// memory, becomes graft::float_mm, which a target has kernels for: no large matrix is written as floats on
// the way.
//
//   %2: f32 = aten::_to_copy(%x)            ->   %4: f32 = graft::float_mm(%x, %w, dtype=f32)
//   %4: f32 = aten::mm(%2, %w)
//
//   %5: f32 = aten::mm(%t, %b)              ->   %7: bf16 = graft::float_mm(%t, %b, added=%y, dtype=bf16)
//   %6: f32 = aten::add.Tensor(%y, %5)
//   %7: bf16 = aten::_to_copy(%6)
#pragma once
#include "ir/graph.h"

namespace graft::passes {

/// Where the short side has at most so many elements.
void use_float_products(ir::Graph& graph, int64_t short_side);

}  // namespace graft::passes
