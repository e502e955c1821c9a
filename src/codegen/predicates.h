// Which steps of a program need not run in a call that chooses fewer adapters than the program has.
//
// The choice comes as data: gates (graft::gate_keep, graft::gate_put) let a slot's values through on the rows
// that chose it. If no row did, a step whose results are used behind that gate only, or are sums and products
// of what the gate made zero, may leave zeros in place of its results.
#pragma once
#include <map>
#include <optional>

#include "codegen/fusion.h"

namespace graft::codegen {

struct Predicates {
  /// For each step of the schedule the slots of which at least one must be in use; nothing: it always runs.
  std::vector<std::optional<std::vector<int64_t>>> steps;
  /// For each of those slots its column of the routing table, a view of an input.
  std::map<int64_t, const ir::Value*> columns;
};

Predicates predicates(const ir::Graph& graph, const Schedule& schedule);

}  // namespace graft::codegen
