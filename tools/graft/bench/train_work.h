// The suite "train": steps of the Trainer, as `graft train` takes them. bench/train_work.py is the same in
// Python.
#pragma once
#include "bench/rows.h"
#include "bench/work.h"

namespace graft::cli::bench {

std::vector<Row> train_rows(bool tiny);

/// A request to load whose work is "train".
std::unique_ptr<Work> load_train_work(const nlohmann::ordered_json& request);

}  // namespace graft::cli::bench
