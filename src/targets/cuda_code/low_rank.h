// graft::low_rank_add (runtime/low_rank_add.h) as CUDA C++: the adapters of a layer, each on the rows that
// chose it. A block does the work of the adapters that one of its rows has chosen, and no other.
#pragma once
#include <cstdint>
#include <string>

#include "targets/cuda_code/narrow_products.h"

namespace graft::cuda {

/// Of one launch.
constexpr int most_adapters = 64;

/// As the kernels have them: A [rank, in] and B [out, rank] with no gaps, a number, the column of the routing
/// table, where the adapter's columns are in what lies between A and B, and which columns of y it adds to:
/// those of whole blocks.
struct LowRankAdapters {
  const float *a[most_adapters], *b[most_adapters], *scaling[most_adapters];
  int32_t slot[most_adapters], rank[most_adapters], first[most_adapters], begin[most_adapters],
      end[most_adapters];
  int32_t count;
};

/// The routing table: where it is, its strides, and how many rows of x belong to one of its rows.
struct LowRankChoice {
  const bool* table;
  int64_t steps[2];
  int32_t each;
};

/// lower(float* t, x, LowRankAdapters, LowRankChoice, NarrowPlan): x times A times the scaling, into the
/// adapter's columns of t, over a grid of slices of the columns, blocks of rows, and blocks of ranks of each
/// adapter (shape: dots_shape). `narrow` of the plan is not used. `kind` says how an A lies: along the large
/// side.
std::string lower_function(const NarrowKind& kind);

/// lift(out, y, const float* t, LowRankAdapters, LowRankChoice, NarrowPlan): y plus t times B (shape:
/// spread_shape). `narrow` and `small` are not used.
std::string lift_function(const NarrowKind& kind);

}  // namespace graft::cuda
