// The work of the suite "decode": text generation. bench/decode_work.py is the same in Python.
#pragma once
#include "bench/work.h"

namespace graft::cli::bench {

/// A request to load whose work is "generate".
std::unique_ptr<Work> load_decode_work(const nlohmann::ordered_json& request);

}  // namespace graft::cli::bench
