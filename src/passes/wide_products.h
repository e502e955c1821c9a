// Half precision on a target that has no instructions for it: ATen's products of bfloat16 then go element by
// element, hundreds of times slower than the same in float32. So products, convolutions and attention are
// computed in float32 and rounded to what they were; the casts become part of neighbouring kernels.
//
//   %2: bf16[8, 4] = aten::mm(%x, %w)   ->   %2: f32[8, 16] = aten::_to_copy(%x)
//                                            %3: f32[16, 4] = aten::_to_copy(%w)
//                                            %4: f32[8, 4] = aten::mm(%2, %3)
//                                            %5: bf16[8, 4] = aten::_to_copy(%4)
//
// A product of very few rows reads its weight once and is over: that is a kernel of its own (multiply, sum),
// with no copy of the weight in float32. On a GPU it is one although products are fast: what follows
// becomes part of the kernel, and the next one begins while it runs.
#pragma once
#include <functional>

#include "ir/graph.h"

namespace graft::passes {

/// In float32 where they are slow, as kernels where they have at most so many rows.
void widen_products(ir::Graph& graph, const std::function<bool(ir::DType)>& is_slow,
                    const std::function<int64_t(ir::DType)>& rows_of_a_kernel);

}  // namespace graft::passes
