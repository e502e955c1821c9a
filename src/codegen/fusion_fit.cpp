// Which nodes can be one kernel.
#include <algorithm>

#include "codegen/fuser.h"
#include "ir/arguments.h"

namespace graft::codegen {
namespace {

using ir::Node;
using ir::Value;

bool row_level(const Value& value, const Space& space) { return points(space) != value.type().numel(); }

/// There when all rows are done, and for none of them.
bool once_level(const Value& value, const Space& space) {
  return value.type().numel() == 1 && kept_points(space) > 1 && kept_points(space) != points(space);
}

bool column_level(const Value& value, const Space& space, const Limits& limits) {
  return value.producer() && crossed_by(*value.producer(), space, limits.long_row).has_value();
}

/// A reduction of one number a row, to one number. Few long rows want several workers each, which a kernel
/// that continues over all rows cannot give them.
bool reduces_rows(const Node& node, const Space& space, const Limits& limits) {
  const int64_t rows = kept_points(space), row = points(space) / std::max<int64_t>(rows, 1);
  return !is_pointwise(node) && once_level(node.output(), space) && points_of(node) == rows &&
         space.back().reduced && (rows >= limits.few_rows || row <= limits.long_row);
}

/// The unit is done with rows that it would have to fetch again: that is no better than a kernel of its own,
/// which can write in place.
bool rows_are_far(const Unit& unit, const Limits& limits) {
  const int64_t rows = kept_points(unit.space);
  return rows < limits.few_rows && points(unit.space) / std::max<int64_t>(rows, 1) >= limits.far_row &&
         std::any_of(unit.nodes.begin(), unit.nodes.end(), [](const Node* n) { return !is_pointwise(*n); });
}

std::optional<Space> united_space(const Node& node, const Unit& unit, const Limits& limits) {
  if (!is_pointwise(node)) {
    const auto& sizes = ir::value_of(node, "self")->type().sizes;
    if (reduces_rows(node, unit.space, limits)) return refine_kept(unit.space, sizes);
    if (points_of(node) != points(unit.space)) return std::nullopt;
    if (auto space = crossed_by(node, unit.space, limits.long_row)) return space;
    return unite(unit.space, space_over(sizes, dims_reduced_by(node)));
  }
  const auto& sizes = node.output().type().sizes;
  if (points_of(node) == points(unit.space))
    return rows_are_far(unit, limits) ? std::nullopt : refine(unit.space, sizes);
  if (points_of(node) == kept_points(unit.space)) return refine_kept(unit.space, sizes);
  if (once_level(node.output(), unit.space) &&
      std::any_of(unit.nodes.begin(), unit.nodes.end(),
                  [&](const Node* n) { return reduces_rows(*n, unit.space, limits); }))
    return unit.space;
  return std::nullopt;
}

}  // namespace

std::optional<Space> Fuser::fits(const Node& node, const Unit& unit) {
  if (unit.nodes.size() >= limits_.nodes || points_of(node) == 0) return std::nullopt;
  auto space = united_space(node, unit, limits_);
  if (!space || depends_otherwise(node, unit) || !accesses_fit(node, unit, *space)) return std::nullopt;
  return space;
}

bool Fuser::depends_otherwise(const Node& node, const Unit& unit) {
  std::vector<const Unit*> from;
  for (const auto* input : node.inputs())
    if (const auto* read = unit_of(*input); read && read != &unit) from.push_back(read);
  return waits_for(std::move(from), unit);
}

bool Fuser::waits_for(std::vector<const Unit*> stack, const Unit& unit) {
  std::unordered_set<const Unit*> seen;
  while (!stack.empty()) {
    const auto* at = stack.back();
    stack.pop_back();
    if (at == &unit) return true;
    // What waits for the kernel waits for all that it waits for.
    if (at->latest < unit.latest || !seen.insert(at).second) continue;
    const auto found = reads_.find(at);
    if (found == reads_.end()) continue;
    for (const auto* next : found->second) stack.push_back(next);
  }
  return false;
}

bool Fuser::made_by(const Value& value, const Unit& unit) const {
  const auto found = value.producer() ? units_of_.find(value.producer()) : units_of_.end();
  return found != units_of_.end() && found->second == &unit;
}

Place Fuser::own_place(const Lowering& lowering, const Value& value, const Space& space) const {
  if (column_level(value, space, limits_)) return lowering.column_place(value.type().sizes);
  if (once_level(value, space)) return Lowering::once_place(value.type().sizes);
  return row_level(value, space) ? lowering.row_place(value.type().sizes)
                                 : lowering.full_place(value.type().sizes);
}

bool Fuser::accesses_fit(const Node& node, const Unit& unit, const Space& space) {
  const auto inside = [&](const Value& v) { return made_by(v, unit); };
  Lowering trial(space, limits_,
                 [&](const Value& v) { return &v == &node.output() || (!inside(v) && inlined(v)); });
  try {
    if (const auto scatter = scatter_of(node))
      scatter->add(trial, trial.full_place(scatter->sizes));
    else
      trial.evaluate(node.output(), own_place(trial, node.output(), space));
  } catch (const std::logic_error&) {
    return false;
  }
  std::set<const Value*> buffers;
  for (const auto& access : trial.accesses()) {
    const auto& value = root_of(*access.value);
    buffers.insert(&value);
    if (!inside(value)) continue;
    if (access.gathered) return false;
    if (column_level(value, space, limits_)) return false;
    // No row can use it, nor can what is reduced over the rows.
    if (once_level(value, space) && !(once_level(node.output(), space) && is_pointwise(node))) return false;
    if (access.place == own_place(trial, value, space)) continue;
    if (!is_pointwise(*value.producer()) || !inlined(value)) return false;
    // Computed again elsewhere, it would need there what the kernel has only here: a reduction, say.
    const auto& leaves = cost(value).leaves;
    if (std::any_of(leaves.begin(), leaves.end(), [&](const Value* leaf) { return inside(*leaf); }))
      return false;
  }
  for (const auto* n : unit.nodes)
    for (const auto* input : n->inputs())
      if (!inside(root_of(*input))) buffers.insert(&root_of(*input));
  return buffers.size() <= limits_.buffers;
}

}  // namespace graft::codegen
