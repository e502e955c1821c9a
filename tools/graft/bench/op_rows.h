// The rows of the suite `ops`.
#pragma once
#include "bench/row.h"

namespace graft::cli::bench {

/// OP-DTYPE-forward and, where the op has gradients, OP-DTYPE-backward, which is forward and backward.
std::vector<Row> op_rows();

}  // namespace graft::cli::bench
