// Rows that are written to places that are data, as CUDA C++: what index_copy_ does, but nothing at all where
// one of the places is not one, and without the host having to wait.
#pragma once
#include <cstdint>
#include <string>

namespace graft::cuda {

constexpr int most_row_dims = 6;

/// What is written where, as the kernel has it: first by dimension of the source, the innermost one first.
struct RowPlan {
  int64_t to[most_row_dims], from[most_row_dims];  ///< strides
  int64_t places[most_row_dims];                   ///< stride of the indices along this dimension; else 0
  int64_t rows;                                    ///< places that there are
  int64_t indices, index_step;
  int64_t row_step;  ///< from one place to the next
  uint32_t sizes[most_row_dims];
  uint32_t elements;  ///< of the source
  int32_t dims;       ///< that have more than one element
};

/// Of one launch, all to the same places: those of a key cache and of its value cache.
constexpr int most_row_writes = 4;

struct RowWrites {
  void* to[most_row_writes];
  const void* from[most_row_writes];
  RowPlan plans[most_row_writes];
};

/// extern "C" function `write_rows`: RowWrites, the indices, `int* failed`, `int mark`, over a grid of
/// blocks, writes. For elements of 1, 2, 4, 8 or 16 bytes.
std::string row_write_code(int64_t bytes);
/// The same without what stands before it (expressions.h: conversions()).
std::string row_write_function(int64_t bytes);

}  // namespace graft::cuda
