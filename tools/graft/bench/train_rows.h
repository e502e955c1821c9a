// The suite "train": steps of the Trainer, as `graft train` takes them.
#pragma once
#include "bench/row.h"

namespace graft::cli::bench {

std::vector<Row> train_rows(bool tiny);

}  // namespace graft::cli::bench
