// A graph in double precision: the judge when compiled code and eager differ by what might be rounding.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "ir/graph.h"

namespace graft {

/// A graph's results over ATen, in its own precision and with every floating number widened to float64.
/// Random numbers are those of the first run, from the generators as they stand. Both empty where some
/// operator has no such form.
struct TwoPrecisions {
  std::vector<at::Tensor> plain, precise;
};
TwoPrecisions run_precisely(const ir::Graph& graph, const std::vector<at::Tensor>& inputs,
                            const std::vector<at::Generator>& generators);

}  // namespace graft
