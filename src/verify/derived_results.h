// The second judge's means: a result computed again from other results of the same run, in a few steps. Where
// both sides' values are what the graph makes of their own other results, neither is wrong.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "ir/graph.h"

namespace graft::verify {

/// The graph's result of that number over ATen, computed from its other results, where `known` has them, and
/// from its inputs. Undefined where that takes more than a few operators, or random numbers.
at::Tensor recompute_from_results(const ir::Graph& graph, size_t result,
                                  const std::vector<at::Tensor>& inputs,
                                  const std::vector<at::Tensor>& known);

}  // namespace graft::verify
