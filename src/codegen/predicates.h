// Which steps of a program need not run in a call that chooses fewer adapters than the program has.
//
// The choice comes as data: gates (graft::gate_keep, graft::gate_put) let a slot's values through on the rows
// that chose it. If no row did, a step whose results are used behind that gate only need not run; and one
// whose results are sums and products of what the gate made zero may leave zeros instead, or what it adds a
// product of zeros to.
#pragma once
#include <optional>

#include "codegen/fusion.h"

namespace graft::codegen {

struct Predicates {
  /// For each step of the schedule the slots of which at least one must be in use; nothing: it always runs.
  std::vector<std::optional<std::vector<int64_t>>> steps;
  /// What stands in place of the results of a step that does not run.
  enum class Otherwise { anything, zeros, self };
  std::vector<Otherwise> otherwise;
  /// The routing table [row, slot] of booleans: an input. Null: no step has a condition.
  const ir::Value* table = nullptr;
};

Predicates predicates(const ir::Graph& graph, const Schedule& schedule);

}  // namespace graft::codegen
