// Products of one matrix with weights that follow each other in memory are one product with all of them, and
// no weight is copied for that.
//
//   %2 = aten::mm(%x, t(%q))        %4 = aten::mm(%x, t(graft::side_by_side(%q, %k)))
//   %3 = aten::mm(%x, t(%k))   ->   %2 = %4[:, :64],  %3 = %4[:, 64:]
//
// This is what queries, keys and values are, and a gate and what it lets through, in models that lay their
// weights so (nn/linear.h). Should they lie apart in a later call, graft::side_by_side copies them: the
// result is the same.
#pragma once
#include <functional>
#include <vector>

#include "ir/graph.h"

namespace graft::passes {

/// Numbers of graph inputs; those of a list follow each other in memory.
using Neighbours = std::vector<std::vector<size_t>>;

/// Products of a type with at most so many rows are kernels (wide_products.h), which take in what is done
/// with their results. Two that meet there are one kernel already, and stay as they are.
using RowsOfAKernel = std::function<int64_t(ir::DType)>;

/// Those that are going to be kernels, while they are still products: REQUIRES that widen_products follows.
/// Equal reshapes of what they read need not be one value yet. Only where that makes kernels fewer: what is
/// done with each product for itself becomes a kernel of its own.
void join_few_row_siblings(ir::Graph& graph, const Neighbours& neighbours,
                           const RowsOfAKernel& rows_of_a_kernel);

void join_adjacent_siblings(ir::Graph& graph, const Neighbours& neighbours,
                            const RowsOfAKernel& rows_of_a_kernel);

}  // namespace graft::passes
