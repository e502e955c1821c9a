// What the reports of several commands have in common.
#pragma once
#include <nlohmann/json.hpp>

#include "graft/model.h"

namespace graft::cli {

/// Of the model's parameters and buffers.
int64_t held_bytes(const PreTrainedModel& model);
/// graphs, graph_breaks, recompiles, kernels, extern_calls, cache_hits: since the start of the program.
void add_counters(nlohmann::ordered_json& report);

}  // namespace graft::cli
