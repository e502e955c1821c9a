#include "bench/suites.h"

#include <algorithm>

#include "bench/adapter_rows.h"
#include "bench/cpu_rows.h"
#include "bench/decode_rows.h"
#include "bench/gpu_rows.h"
#include "bench/op_rows.h"
#include "bench/train_rows.h"
#include "command.h"

namespace graft::cli::bench {
namespace {

std::vector<Row> rows_of(const std::string& name, bool tiny, const std::string& model_file) {
  if (name == "decode") return decode_rows(tiny, model_file);
  if (!model_file.empty()) throw WrongUsage("--model goes with --suite decode");
  if (name == "adapters") return adapter_rows(tiny);
  if (name == "train") return train_rows(tiny);
  if (name == "gpu") return gpu_rows(tiny);
  if (name != "cpu" && name != "ops")
    throw WrongUsage(
        "--suite " + name +
        ": there are the suites \"cpu\", \"ops\", \"gpu\", \"adapters\", \"decode\" and \"train\"; vision "
        "comes with its part of graft");
  if (tiny) throw WrongUsage("--tiny goes with the suites gpu, adapters, decode and train");
  return name == "ops" ? op_rows() : cpu_rows();
}

std::string joined(const std::vector<Row>& rows) {
  std::string names;
  for (const auto& row : rows) names += (names.empty() ? "" : ", ") + row.name;
  return names;
}

}  // namespace

std::vector<Row> suite_named(const std::string& name, bool tiny, const std::string& model_file,
                             const std::string& device) {
  auto rows = rows_of(name, tiny, model_file);
  if (device.empty()) return rows;
  if ((name == "cpu" || name == "ops") && device != "cpu")
    throw WrongUsage("--device " + device + " goes with the suites gpu, adapters, decode and train");
  if (name == "gpu" && device == "cpu" && !tiny)
    throw WrongUsage(
        "--suite gpu has models that a CPU takes hours for: --device cpu goes with --tiny there");
  for (auto& row : rows) row.place.device = device;
  return rows;
}

std::vector<Row> chosen(const std::vector<Row>& rows, const std::vector<std::string>& only) {
  for (const auto& wanted : only)
    if (std::none_of(rows.begin(), rows.end(), [&](const Row& row) { return fits(row.name, wanted); }))
      throw WrongUsage("--only " + wanted + ": no such row; rows: " + joined(rows));
  std::vector<Row> found;
  for (const auto& row : rows)
    if (only.empty() ||
        std::any_of(only.begin(), only.end(), [&](const auto& wanted) { return fits(row.name, wanted); }))
      found.push_back(row);
  return found;
}

std::vector<std::vector<Row>> grouped(const std::vector<Row>& rows) {
  const auto together = [](const Row& first, const Row& next) {
    return !next.over.empty() && (next.over == first.name || next.over == first.over);
  };
  std::vector<std::vector<Row>> groups;
  for (const auto& row : rows) {
    if (groups.empty() || !together(groups.back().front(), row)) groups.emplace_back();
    groups.back().push_back(row);
  }
  return groups;
}

}  // namespace graft::cli::bench
