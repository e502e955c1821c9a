// Which elements an upsampling takes.
#pragma once
#include <cstdint>
#include <optional>

#include "ir/graph.h"

namespace graft::ir {

/// What an upsampling makes of each element along dimension `dim` of [N, C, ...]: so many, if its call says
/// it.
std::optional<double> upsampling_factor(const Node& node, size_t dim);

/// Whether ATen takes element i * from / to for the output's element i (exact: the one under its middle),
/// along dimension `dim` of [N, C, ...]. It computes in floating numbers, in several ways: for float64, for
/// channels last and in the backward pass.
bool takes_quotients(const Node& node, bool exact, size_t dim, int64_t from, int64_t to);

}  // namespace graft::ir
