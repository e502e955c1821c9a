// The suite "cpu": small models of several kinds, and single ops.
#pragma once
#include "bench/row.h"

namespace graft::cli::bench {

std::vector<Row> cpu_rows();

}  // namespace graft::cli::bench
