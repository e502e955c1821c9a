#include "bench/train_rows.h"

#include "bench/adapter_rows.h"

namespace graft::cli::bench {

std::vector<Row> train_rows(bool tiny) {
  constexpr int64_t kBatches = 64;  // in an epoch, so that its end is there, but seldom
  const std::vector<std::string> methods{"full", "lora", "dora", "ia3", "oft"};
  std::vector<Row> rows;
  rows.reserve(methods.size());
  for (const auto& method : methods) {
    auto row = on_small_llama(tiny, method + "-train", "train");
    if (method != "full") row.adapters.config = recipe_of(method);
    auto& shape = row.inputs["input_ids"]["shape"];
    shape.insert(shape.begin(), kBatches);
    row.goals = {.steady = 0.9, .host = 0.03, .memory = 1};
    rows.push_back(row);
  }
  return rows;
}

}  // namespace graft::cli::bench
