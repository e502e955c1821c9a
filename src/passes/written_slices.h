// Slices written into a tensor one after the other, as padding at both ends or a loop over a tensor's parts
// does, are one cat; and what is read between two writes is read from where it came.
//
//   %2 = aten::slice_scatter(%1, %0, 1, 1, 8)     ->   %6 = aten::slice(%0, 1, 6, 7)
//   %3 = aten::slice(%2, 1, 7, 8)                      %7 = aten::copy(.., %6)
//   %4 = aten::copy(.., %3)                            %5 = aten::cat([%7, %0], 1)
//   %5 = aten::slice_scatter(%2, %4, 1, 0, 1)
//
// Each write is a pass over the whole tensor otherwise, and what reads in between keeps them apart.
#pragma once
#include "ir/graph.h"

namespace graft::passes {

void join_written_slices(ir::Graph& graph);

}  // namespace graft::passes
