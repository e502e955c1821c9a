// Attention of very few queries over many keys, as in decoding, becomes graft::attend, which a target has a
// kernel for: each key is read once for all heads that share it.
//
//   %3 = aten::expand(%keys)                    ->   %8 = graft::attend(%q, %keys, %values, %mask)
//   %4 = aten::clone(%3)
//   %5 = aten::view(%4)
//   ... the same of the values
//   %8 = aten::_scaled_dot_product_cudnn_attention(%q, %5, %7, %mask)
#pragma once
#include "ir/graph.h"

namespace graft::passes {

/// Of at most so many queries.
void attend_with_few_queries(ir::Graph& graph, int64_t queries);

}  // namespace graft::passes
