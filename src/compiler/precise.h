// A graph in double precision: the judge when compiled code and eager differ by what might be rounding.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "ir/graph.h"

namespace graft {

/// The graph's results with every floating number widened to float64. Random numbers are those that the graph draws
/// in its own precision, from the generators as they stand. Empty where some operator has no such form.
std::vector<at::Tensor> precise_results(const ir::Graph& graph, const std::vector<at::Tensor>& inputs,
                                        const std::vector<at::Generator>& generators);

}  // namespace graft
