#include "bench/op_rows.h"

#include "bench/op_table.h"

namespace graft::cli::bench {
namespace {

constexpr const char* kDtypes[] = {"float32", "float64", "bfloat16"};
/// Below it a row is marked: the rest is what two runs of the same differ by.
constexpr double kAsFast = 0.95;

Row row_of(const Op& op, const std::string& dtype) {
  auto inputs = ordered_json::object();
  for (const auto& input : op.inputs) {
    auto spec = input.spec;
    if (!spec.contains("dtype")) spec["dtype"] = dtype;
    inputs[input.name] = spec;
  }
  // Eager adds up gradients and scans in bfloat16: it is what is off.
  const double loose = dtype == "bfloat16" ? 0.2 : loose_single();
  return {.name = op.name + "-" + dtype + "-forward",
          .work = op.name,
          .config = nullptr,
          .inputs = inputs,
          .tolerance = op.has(chaotic) ? 1.0 : loose,
          .goals = {.speed = kAsFast},
          .place = {.device = "cpu", .dtype = dtype},
          .quick = true};
}

}  // namespace

std::vector<Row> op_rows() {
  std::vector<Row> rows;
  for (const auto& op : all_ops())
    for (const std::string dtype : kDtypes) {
      if (dtype == "bfloat16" && op.has(no_half)) continue;
      auto row = row_of(op, dtype);
      rows.push_back(row);
      for (const auto& input : op.inputs)
        if (input.trained) row.trained.push_back(input.name);
      if (row.trained.empty()) continue;
      row.name = op.name + "-" + dtype + "-backward";
      rows.push_back(row);
    }
  return rows;
}

}  // namespace graft::cli::bench
