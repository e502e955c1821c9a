#include "report.h"

#include "graft/compile.h"

namespace graft::cli {

int64_t held_bytes(const PreTrainedModel& model) {
  int64_t bytes = 0;
  for (const auto& [name, parameter] : model.unique_parameters())
    bytes += static_cast<int64_t>(parameter.nbytes());
  for (const auto& buffer : model.buffers()) bytes += static_cast<int64_t>(buffer.nbytes());
  return bytes;
}

void add_counters(nlohmann::ordered_json& report) {
  const auto now = counters();
  for (const auto& [name, value] : {std::pair("graphs", now.graphs),
                                    {"graph_breaks", now.graph_breaks},
                                    {"recompiles", now.recompiles},
                                    {"kernels", now.kernels},
                                    {"extern_calls", now.extern_calls},
                                    {"cache_hits", now.cache_hits}})
    report[name] = value;
}

}  // namespace graft::cli
