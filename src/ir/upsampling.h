// Which elements an upsampling takes.
#pragma once
#include <cstdint>

#include "ir/graph.h"

namespace graft::ir {

/// Whether ATen takes element i * from / to for the output's element i (exact: the one under its middle),
/// along dimension `dim` of [N, C, ...]. It computes in floating numbers, in several ways: for float64, for
/// channels last and in the backward pass.
bool takes_quotients(const Node& node, bool exact, size_t dim, int64_t from, int64_t to);

}  // namespace graft::ir
