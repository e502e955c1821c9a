// graft::float_mm (runtime/float_mm.h) as CUDA C++, for products with one short side: the rank of an adapter.
// Each of the large matrices is read once, as it lies in memory, and nothing of their size is written
// between.
#pragma once
#include <compare>
#include <cstdint>
#include <string>

#include "ir/type.h"

namespace graft::cuda {

constexpr int narrow_threads = 256;
constexpr int64_t narrow_columns = 16;  ///< of the short side, that a block takes

/// How the small matrix lies: four numbers can be read at once along this dimension.
enum class Along : uint8_t { large, narrow, neither };

/// What the code is made for.
struct NarrowKind {
  ir::DType large;  ///< of the large matrix, or of the result of `spread`
  Along small = Along::neither;
  int rows = 16;  ///< `dots`: that a block takes, 8 or 16

  auto operator<=>(const NarrowKind&) const = default;
};

/// As the kernels have it. Steps are strides in elements.
struct NarrowPlan {
  int64_t rows, columns;  ///< of the large matrix, which lies along its rows
  int64_t narrow;         ///< the short side
  int64_t step;           ///< from row to row of the large matrix
  int64_t small[2];       ///< of the small one: along the large side, along the short one
  int64_t other[2];       ///< of the result (`spread`: of t): the same
  int64_t added;          ///< `spread`: from row to row of what is added
  int64_t parts;          ///< `sums`: among which rows are divided
};

/// x [rows, columns] with w [columns, narrow]: dots(float* out, x, const float* w, NarrowPlan), over a grid
/// of blocks of `dots_rows` rows, blocks of columns of w.
constexpr int64_t dots_rows = 4;
std::string dots_function(const NarrowKind& kind);

/// The transpose of x [rows, columns] with t [rows, narrow]: sums(float* out, x, const float* t, NarrowPlan),
/// over a grid of blocks of `sums_columns` columns, blocks of columns of t, parts. With several parts `out`
/// has room for each, [parts, narrow, columns], and join_sums(float* out, const float* parts, NarrowPlan)
/// adds them, with a thread for each element.
int64_t sums_columns(ir::DType large);
std::string sums_functions(const NarrowKind& kind);

/// t [rows, narrow] with b [narrow, columns], and what is added (or null), in the dtype of the result:
/// spread(out, added, const float* t, const float* b, NarrowPlan), over a grid of blocks of `spread_rows`
/// rows, blocks of sums_columns() columns. The result lies by `step`.
constexpr int64_t spread_rows = 64;
std::string spread_function(const NarrowKind& kind);

/// A function with what stands before it (expressions.h: conversions()).
std::string narrow_code(const std::string& function);

}  // namespace graft::cuda
