// The suite "decode": text generation, token by token.
#pragma once
#include "bench/row.h"

namespace graft::cli::bench {

/// `model_file`: a GGUF file whose weights are taken; empty: random ones.
std::vector<Row> decode_rows(bool tiny, const std::string& model_file);

}  // namespace graft::cli::bench
