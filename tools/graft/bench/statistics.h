// From raw times to what a person reads: medians, ratios, goals met or not.
#pragma once
#include <optional>
#include <vector>

#include "bench/row.h"

namespace graft::cli::bench {

struct Quartiles {
  double low = 0, median = 0, high = 0;
};
/// Linear between neighbours, as numpy does it. REQUIRES values not empty.
Quartiles quartiles(std::vector<double> values);

/// Adds to a measured row: each contender's "median_ms", "q1_ms", "q3_ms" and, for an op, "bandwidth_share"
/// of the plain copy's; the row's "ratios" (graft's time in others') and "goals" [{"what", "value", "limit",
/// "at_least", "met"}].
void add_statistics(const Row& row, ordered_json& measured);

/// Adds to a row that is measured over another, one of `before`: "over" {contender: its time in its own time
/// there}, and the goal for graft.
void add_over(const Row& row, const ordered_json& before, ordered_json& measured);

/// A number of the document by its path, if it is there: number_at(row, "/ratios/cold").
std::optional<double> number_at(const ordered_json& value, const std::string& path);

}  // namespace graft::cli::bench
