// The work of rows over a model alone: a forward pass, forward and backward, or a training step.
#pragma once
#include "bench/work.h"

namespace graft::cli::bench {

/// A request to load whose work is "forward", "backward" or "step".
std::unique_ptr<Work> load_model_work(const nlohmann::ordered_json& request);

}  // namespace graft::cli::bench
