// The suite "decode": text generation, token by token. bench/decode_work.py is the same in Python.
#pragma once
#include "bench/rows.h"
#include "bench/work.h"

namespace graft::cli::bench {

std::vector<Row> decode_rows(bool tiny, const std::string& model_file);

/// A request to load whose work is "generate".
std::unique_ptr<Work> load_decode_work(const nlohmann::ordered_json& request);

}  // namespace graft::cli::bench
