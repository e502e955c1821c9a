// Reads the text of a graph.
//
//   graph(%0 "x": f32[2, 3], %1 "w": f32[3]{2}@cuda:0) {
//     %2: f32[2, 3] = aten::mul.Tensor(self=%0, other=%1)  # the module's path
//     %3: f32[4, 3] = aten::cat(tensors=tensors[%2, %0], dim=0)
//     return (%3, None)
//   }
//
// Values of arguments: %N, tensors[%N, None, ...], None, Undefined, true, false, 12, 1.5, inf,
// complex(1.0, -2.0), "text", 'word (a Symbol), f32 (a dtype),
// @cuda:0 (a device), [1, 2], [1.5, 2.0], [true, false], and f64[], bool[] for empty lists of those.
#pragma once
#include <string_view>

#include "ir/graph.h"

namespace graft::ir {

/// FormatError with line and column for what is not a graph: also for a value that is used before it is
/// defined, or defined twice.
Graph parse(std::string_view text);

}  // namespace graft::ir
