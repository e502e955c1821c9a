// The work of the suite "train": steps of the Trainer, as `graft train` takes them. bench/train_work.py is
// the same in Python.
#pragma once
#include "bench/work.h"

namespace graft::cli::bench {

/// A request to load whose work is "train".
std::unique_ptr<Work> load_train_work(const nlohmann::ordered_json& request);

}  // namespace graft::cli::bench
