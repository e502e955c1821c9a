// Operators whose result at a place follows from all places before it along one dimension: running sums and
// products. Such a kernel walks that dimension in its order, for as many lines of it at once as there are;
// what computes its argument may be part of it, and nothing else is.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/op.h"
#include "ir/graph.h"

namespace graft::codegen {

struct Scan {
  Op op;
  int64_t dim;
  ir::DType dtype;  ///< that it is computed in, wide enough for what ATen gives
};

/// Nothing if the node is none that a kernel can do.
std::optional<Scan> scan_of(const ir::Node& node);

std::vector<std::string> scan_operators();

}  // namespace graft::codegen
