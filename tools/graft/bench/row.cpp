#include "bench/row.h"

namespace graft::cli::bench {

ordered_json numbers(const std::vector<int64_t>& shape, const std::string& dtype) {
  return {{"shape", shape}, {"dtype", dtype}};
}

ordered_json whole_numbers(const std::vector<int64_t>& shape, int64_t below) {
  return {{"shape", shape}, {"dtype", "int64"}, {"below", below}};
}

// Results are compared so that nobody measures different work, not to judge rounding: that is the tests' job.
double loose_single() { return 5e-3; }
double loose_half() { return 4e-2; }

bool fits(const std::string& row, const std::string& wanted) {
  return row == wanted || row.starts_with(wanted + "-");
}

int64_t tokens_of(const Row& row) {
  if (row.new_tokens < 2) return 0;
  return row.inputs.at("input_ids").at("shape")[0].get<int64_t>() * row.new_tokens;
}

ordered_json description(const Row& row) {
  return {{"name", row.name},
          {"work", row.work},
          {"model", row.config},
          {"inputs", row.inputs},
          {"trained", row.trained},
          {"adapter", row.adapters.config},
          {"adapters", row.adapters.count},
          {"state", row.adapters.state},
          {"over", row.over},
          {"new_tokens", row.new_tokens},
          {"model_file", row.model_file},
          {"device", row.place.device},
          {"dtype", row.place.dtype}};
}

}  // namespace graft::cli::bench
