// graft::float_mm (runtime/float_mm.h) as CUDA C++, for products with one short side: the rank of an adapter.
// Each of the large matrices is read once, as it lies in memory, and nothing of their size is written
// between.
#pragma once
#include <compare>
#include <cstdint>
#include <string>

#include "ir/type.h"

namespace graft::cuda {

/// How the small matrix lies: neighbours can be read at once along this dimension.
enum class Along : uint8_t { large, narrow, neither };

/// What the code is made for.
struct NarrowKind {
  ir::DType large;  ///< of the large matrix, or of the result of `spread`
  Along small = Along::neither;
  int columns = 16;  ///< that a block takes. `dots`: of w, 16, 32 or 48; `sums`: of x, 32 or 64
  int slices = 1;    ///< of x's columns, each for a block of a cluster: 1, 2, 4 or 8. `dots` alone
  int rows = 16;     ///< of x that a block takes: 16, or 32 if it has 16 columns of w. `dots` alone

  auto operator<=>(const NarrowKind&) const = default;
};

/// As the kernels have it. Steps are strides in elements.
struct NarrowPlan {
  int64_t rows,
      columns;       ///< of the large matrix, which lies along its rows; a multiple of narrow_group columns
  int64_t narrow;    ///< the short side
  int64_t step;      ///< from row to row of the large matrix
  int64_t small[2];  ///< of the small one: along the large side, along the short one
  int64_t other[2];  ///< of the result (`spread`: of t): the same
  int64_t added;     ///< `spread`: from row to row of what is added
};

/// Columns that are read at once: rows begin at multiples of them.
constexpr int64_t narrow_group = 8;

/// Threads of a block, and what a block takes of the large matrix and of the short side.
struct NarrowShape {
  int threads;
  int64_t rows, columns, narrow;
};

/// How a kernel divides its work among the blocks of a GPU.
struct Division {
  int processors;
  int most_slices;  ///< 1 where a GPU has no clusters
};

/// x [rows, columns] with w [columns, narrow]: dots(float* out, x, const float* w, NarrowPlan), over a grid
/// of slices of the columns, blocks of rows, blocks of the short side.
/// `products`: so many are launched at once.
void divide_dots(NarrowKind& kind, int64_t rows, int64_t columns, int64_t products, const Division& among);
NarrowShape dots_shape(const NarrowKind& kind);
std::string dots_function(const NarrowKind& kind);
/// The device function that it consists of: dots_of_block(float* out, x, const float* w, plan, int first of
/// the short side, float scale).
std::string dots_of_block(const NarrowKind& kind);
/// What stands before the name of a kernel that calls it.
std::string bounds_of_dots(const NarrowKind& kind);

/// The transpose of x [rows, columns] with t [rows, narrow]: sums(float* out, x, const float* t, NarrowPlan),
/// over a grid of blocks of columns, blocks of the short side.
NarrowShape sums_shape(const NarrowKind& kind);
std::string sums_function(const NarrowKind& kind);

/// t [rows, narrow] with b [narrow, columns], and what is added (or null), in the dtype of the result:
/// spread(out, added, const float* t, const float* b, NarrowPlan), over a grid of blocks of rows, blocks of
/// columns. The result lies by `step`.
constexpr int64_t spread_columns = 256;  ///< of a block
NarrowShape spread_shape();
std::string spread_function(const NarrowKind& kind);
/// The device functions that it consists of: patch_of_lane(), add_short(), add_long(), write_exactly(),
/// add_exactly().
std::string spread_of_block(const NarrowKind& kind);

}  // namespace graft::cuda
