// The suite "gpu": Llamas of 1 and 8 billion parameters in half precision.
#pragma once
#include "bench/row.h"

namespace graft::cli::bench {

std::vector<Row> gpu_rows(bool tiny);

}  // namespace graft::cli::bench
