// Small kernels that are launched as one, on a device where a launch takes as long as they do.
//
//   kernel: rotates q    call: product with w1    kernel: rotates k    call: attention
//   becomes   call: product with w1    kernel: rotates q + kernel: rotates k    call: attention
//
// A kernel waits for others of its kind until somebody needs what it makes, and those that could run already
// are fetched from further down. The kernels of one launch run at the same time: none needs another.
#pragma once
#include <cstdint>
#include <functional>

#include "codegen/fusion.h"
#include "ir/graph.h"

namespace graft::codegen {

/// Kernels of the same kind can be one launch; 0: it is a launch of its own.
using LaunchKind = std::function<int64_t(const Kernel&)>;

/// Orders the steps, and marks those that are launched with the one before them (Step::with_last). Kernels
/// that can fail by their data, that scatter or that a run may leave out (predicates.h) stay by themselves.
void put_side_by_side(const ir::Graph& graph, Schedule& schedule, const LaunchKind& kind_of);

}  // namespace graft::codegen
