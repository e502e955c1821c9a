// What every command's --report says of compilation.
#pragma once
#include <nlohmann/json.hpp>

#include "graft/compile.h"

namespace graft::cli {

inline void add_counters(nlohmann::ordered_json& report, const Counters& counters) {
  report["graphs"] = counters.graphs;
  report["graph_breaks"] = counters.graph_breaks;
  report["recompiles"] = counters.recompiles;
  report["kernels"] = counters.kernels;
  report["extern_calls"] = counters.extern_calls;
  report["cache_hits"] = counters.cache_hits;
}

}  // namespace graft::cli
