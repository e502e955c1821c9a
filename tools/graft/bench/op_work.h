// The work of rows over single ops, and the plain copy that their bandwidth is measured in.
#pragma once
#include "bench/work.h"

namespace graft::cli::bench {

/// A request to load whose work is an op; UsageError for an unknown one.
std::unique_ptr<Work> load_op_work(const nlohmann::ordered_json& request);
/// A request to load whose "how" is "copy".
std::unique_ptr<Work> load_copy_work(const nlohmann::ordered_json& request);

}  // namespace graft::cli::bench
