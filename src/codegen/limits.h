// What fusion asks of a target: where one kernel is no better than two.
#pragma once
#include <cstddef>
#include <cstdint>

namespace graft::codegen {

struct Limits {
  size_t nodes, buffers;   ///< of one kernel
  int64_t long_row;        ///< longer rows are distributed over several workers each
  int64_t few_rows;        ///< so few rows that long ones must be distributed
  int64_t far_row;         ///< a row of so many points is read from memory again in a second pass over it
  int64_t scatter_points;  ///< with fewer points to keep, a kernel that scatters does nothing else
  bool scans = false;      ///< whether it has code for what walks a dimension in its order (scan.h)
};

}  // namespace graft::codegen
