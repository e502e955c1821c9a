// What a suite of `graft bench` measures: one row is one piece of work, the same for every contender.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace graft::cli::bench {

using nlohmann::ordered_json;

/// Ratios to reach; 0: none is set.
struct Goals {
  double steady = 0;     ///< graft's time in torch.compile's, at most
  double cold = 0;       ///< graft's first call in torch.compile's, caches empty, at most
  double warm = 0;       ///< the same with full caches
  double bandwidth = 0;  ///< of a plain copy's, at least
};

struct Row {
  std::string name;
  std::string work;      ///< "forward", "backward" of a model, else the name of an op
  ordered_json config;   ///< the model's config.json; null for an op
  ordered_json inputs;   ///< name -> {shape, dtype[, below]}: random numbers, whole ones below `below`
  int64_t bytes = 0;     ///< an op: what a perfect kernel reads and writes; 0 for a model
  double tolerance = 0;  ///< how far results may lie apart, in shares of the largest value
  Goals goals;

  bool is_model() const { return !config.is_null(); }
};

/// WrongUsage that lists the suites there are.
std::vector<Row> suite_named(const std::string& name);

/// The rows that `only` names: a row's whole name, or the beginning of it up to a dash. All rows when it is
/// empty; WrongUsage for a name that fits none.
std::vector<Row> chosen(const std::vector<Row>& rows, const std::vector<std::string>& only);

}  // namespace graft::cli::bench
