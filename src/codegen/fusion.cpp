#include "codegen/fusion.h"

#include <algorithm>
#include <sstream>

#include "codegen/fuser.h"
#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "ir/product.h"

namespace graft::codegen {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

// A value is computed again where it is needed if that takes at most so many cheap instructions and loads.
constexpr int max_inline_cost = 8, max_inline_leaves = 3;

}  // namespace

Schedule Fuser::run() {
  find_materialised();
  size_t position = 0;
  for (const auto& node : graph_.nodes()) place(*node, position++);
  join_units();
  return order();
}

Unit* Fuser::unit_of(const Value& value) const {
  const auto* node = root_of(value).producer();
  const auto found = node ? units_of_.find(node) : units_of_.end();
  return found == units_of_.end() ? nullptr : found->second;
}

void Fuser::find_materialised() {
  for (const auto* result : graph_.results())
    if (result) materialised_.insert(&root_of(*result));
  for (const auto& node : graph_.nodes()) {
    if (view_source(*node)) continue;
    if (!fusible(*node)) {
      for (const auto* value : node->inputs()) materialised_.insert(&root_of(*value));
    } else {
      for (const auto* value : gathered_arguments(*node)) materialised_.insert(&root_of(*value));
      for (const auto* value : ir::exact_halves(*node)) materialised_.insert(&root_of(*value));
    }
  }
}

const Fuser::Cost& Fuser::cost(const Value& value) {
  const auto& root = root_of(value);
  if (const auto found = costs_.find(&root); found != costs_.end()) return found->second;
  Cost total;
  const auto* node = root.producer();
  if (!node || materialised_.contains(&root) || !is_pointwise(*node) || !fusible(*node)) {
    total.leaves.insert(&root);
  } else {
    total.instructions = is_expensive(*node) ? 100 : 1;
    for (const auto* input : node->inputs()) {
      const auto& part = cost(*input);
      total.instructions += part.instructions;
      total.leaves.insert(part.leaves.begin(), part.leaves.end());
    }
  }
  return costs_.emplace(&root, std::move(total)).first->second;
}

bool Fuser::inlined(const Value& value) {
  const auto& root = root_of(value);
  const auto* node = root.producer();
  if (!node || materialised_.contains(&root) || !is_pointwise(*node) || !fusible(*node)) return false;
  const auto& c = cost(root);
  return c.instructions <= max_inline_cost && static_cast<int>(c.leaves.size()) <= max_inline_leaves;
}

void Fuser::place(const Node& node, size_t position) {
  if (view_source(node)) return;
  era_ += node.op() == "graft::boundary";
  const bool fuses = fusible(node);
  if (const auto scatter = scatter_of(node); scatter && fuses) return place_scatter(node, *scatter, position);
  if (const auto scan = scan_of(node); scan && fuses) {
    auto& unit = new_unit(node, position);
    unit.role = Unit::Role::scans;
    unit.space = space_over(node.output().type().sizes, {scan->dim});
    return enter(node, unit);
  }
  if (fuses)
    for (Unit* unit : candidates(node))
      if (const auto space = unit->era == era_ ? fits(node, *unit) : std::nullopt) {
        unit->nodes.push_back(&node);
        unit->space = *space;
        unit->position = position;
        wait_until(*unit, position);
        enter(node, *unit);
        return;
      }
  auto& unit = new_unit(node, position);
  unit.external = !fuses;
  if (unit.external && ir::must_run(node)) {
    if (!in_order_.empty()) reads(unit, *in_order_.back());
    in_order_.push_back(&unit);
  }
  if (is_pointwise(node))
    unit.space = space_over(node.output().type().sizes);
  else if (!unit.external)
    unit.space = space_over(ir::value_of(node, "self")->type().sizes, dims_reduced_by(node));
  enter(node, unit);
}

Unit& Fuser::new_unit(const Node& node, size_t position) {
  auto& unit = *units_.emplace_back(std::make_unique<Unit>());
  unit.nodes = {&node};
  unit.first = unit.position = unit.latest = position;
  unit.number = units_.size() - 1;
  unit.era = era_;
  return unit;
}

void Fuser::place_scatter(const Node& node, const Scatter& scatter, size_t position) {
  const auto* onto = scatter.onto ? memory_to_add_to(*scatter.onto, node.output()) : nullptr;
  Unit* start = onto ? nullptr : &new_unit(node, position);
  auto& unit = new_unit(node, position);
  unit.role = Unit::Role::scatters;
  unit.space = space_over(scatter.sizes, scatter.walked);
  unit.start = start;
  unit.onto = onto;
  if (start) {
    start->role = Unit::Role::starts;
    start->space = space_over(node.output().type().sizes);
    reads(unit, *start);
    if (scatter.onto) enter(*scatter.onto, *start);
  }
  enter(node, unit);
}

const Value* Fuser::memory_to_add_to(const Value& onto, const Value& result) {
  // Views that end where they began are looked through: a matrix transposed twice.
  const auto* at = &onto;
  int64_t offset = 0;
  while (at->users().size() == 1 && !graph_.is_result(*at) && at->producer() &&
         view_source(*at->producer())) {
    offset += view_offset(*at);
    at = view_source(*at->producer());
  }
  const auto* node = at->producer();
  if (!node || view_source(*node) || at->users().size() != 1 || graph_.is_result(*at) || inlined(*at) ||
      offset != 0 || at->type() != result.type() || onto.type() != result.type())
    return nullptr;
  // Of what calls give, products are known to be memory of their own.
  return !unit_of(*at)->external || ir::as_product(*node) ? at : nullptr;
}

void Fuser::wait_until(Unit& unit, size_t place) {
  std::vector<Unit*> stack{&unit};
  while (!stack.empty()) {
    auto* at = stack.back();
    stack.pop_back();
    if (at->latest >= place) continue;
    at->latest = place;
    if (const auto found = readers_.find(at); found != readers_.end())
      stack.insert(stack.end(), found->second.begin(), found->second.end());
  }
}

void Fuser::enter(const Node& node, Unit& unit) {
  units_of_[&node] = &unit;
  for (const auto* input : node.inputs()) enter(*input, unit);
}

void Fuser::enter(const Value& input, Unit& unit) {
  if (auto* from = unit_of(input); from && from != &unit) reads(unit, *from);
  users_[&root_of(input)].push_back(&unit);
}

std::vector<Unit*> Fuser::candidates(const Node& node) {
  std::vector<Unit*> found;
  const auto add = [&](Unit* unit) {
    if (unit && unit->open() && std::find(found.begin(), found.end(), unit) == found.end())
      found.push_back(unit);
  };
  std::vector<const Value*> leaves;
  for (const auto* input : node.inputs()) {
    add(unit_of(*input));
    if (inlined(*input))
      leaves.insert(leaves.end(), cost(*input).leaves.begin(), cost(*input).leaves.end());
    else
      leaves.push_back(&root_of(*input));
  }
  for (const auto* leaf : leaves) add(unit_of(*leaf));
  std::sort(found.begin(), found.end(), [](Unit* a, Unit* b) { return a->number > b->number; });
  std::vector<Unit*> siblings;
  for (const auto* leaf : leaves) {
    const auto& users = users_[leaf];
    for (size_t i = users.size(), tried = 0; i-- > 0 && tried < 4; ++tried)
      if (users[i]->open() && std::find(found.begin(), found.end(), users[i]) == found.end())
        siblings.push_back(users[i]);
  }
  std::sort(siblings.begin(), siblings.end(), [](Unit* a, Unit* b) { return a->number > b->number; });
  siblings.erase(std::unique(siblings.begin(), siblings.end()), siblings.end());
  // Kernels that only share an input need not wait for each other otherwise: small ones are not worth the
  // bond.
  for (auto* unit : siblings)
    if (points(unit->space) == points_of(node)) found.push_back(unit);
  return found;
}

const Value& root_of(const Value& value) {
  const auto* at = &value;
  while (at->producer()) {
    const auto* source = view_source(*at->producer());
    if (!source) break;
    at = source;
  }
  return *at;
}

Schedule schedule(const Graph& graph, const Limits& limits) { return Fuser(graph, limits).run(); }

std::string to_string(const Schedule& schedule) {
  std::ostringstream text;
  size_t kernels = 0;
  for (const auto& step : schedule.steps) {
    if (step.external) {
      text << "call " << ir::to_string(*step.external) << "\n";
      continue;
    }
    text << (step.with_last ? "+ " : "") << "kernel " << kernels++ << " over";
    for (const auto& dim : step.kernel.dims) text << " " << dim.extent << (dim.reduced ? " reduced" : "");
    text << "\n";
    for (size_t i = 0; i < step.buffers.size(); ++i)
      text << "  "
           << (!step.kernel.buffers[i].written ? "reads"
               : step.kernel.scatters()        ? "adds to"
                                               : "writes")
           << " %" << step.buffers[i]->id() << ": " << ir::to_string(step.buffers[i]->type())
           << (step.kernel.buffers[i].written && step.onto
                   ? " in the memory of %" + std::to_string(step.onto->id())
                   : "")
           << "\n";
    for (const auto* node : step.nodes) text << "    " << ir::to_string(*node) << "\n";
  }
  return text.str();
}

}  // namespace graft::codegen
