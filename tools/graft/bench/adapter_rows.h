// The suite "adapters": every method of PEFT that graft has, and what it costs to have adapters at all.
#pragma once
#include "bench/row.h"

namespace graft::cli::bench {

std::vector<Row> adapter_rows(bool tiny);
/// A row over the model of that suite, without adapters yet.
Row on_small_llama(bool tiny, const std::string& name, const std::string& work, int64_t batch = 4);
/// A method's configuration there: PEFT's names and values, read by both sides.
ordered_json recipe_of(const std::string& method);

}  // namespace graft::cli::bench
