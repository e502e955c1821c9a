// The third judge's means: sums whose terms nearly cancel. The gradient of a key's bias, say, is 0 in exact
// arithmetic: what two programs give for it is rounding, and has nothing in common but its size.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace graft::verify {

/// Which sums are asked about. In half precision what a term may be off by leaves too much room in a sum of
/// many.
enum class Sums : uint8_t { of_two, all };

/// For each of these results that is such a sum, or a reshaped one, the sum of its terms' magnitudes, element
/// by element: what the rounding of a sum is measured by. Undefined for the others. The graph is run over
/// ATen, as far as the terms need it, with random numbers from the generators as they stand.
std::vector<at::Tensor> sums_of_magnitudes(const ir::Graph& graph, Sums which,
                                           const std::vector<size_t>& results,
                                           const std::vector<at::Tensor>& inputs,
                                           const std::vector<at::Generator>& generators);

}  // namespace graft::verify
