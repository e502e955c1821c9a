#include "passes/low_rank_siblings.h"

#include <algorithm>
#include <map>

#include "ir/arguments.h"

namespace graft::passes {
namespace {

using ir::Dim;
using ir::Node;
using ir::Value;

/// Whether its first half can be done at any time after x is there.
bool is_free(const Node& add) {
  const auto is_input = [](const Value* value) { return value && !value->producer(); };
  return std::ranges::all_of(*ir::values_of(add, "a"), is_input) &&
         std::ranges::all_of(*ir::values_of(add, "scaling"), is_input) &&
         is_input(ir::value_of(add, "table"));
}

Dim rank_of(const Value* a) { return a->type().sizes[0]; }

void split(ir::Graph& graph, const std::vector<Node*>& siblings) {
  auto& first = *siblings.front();
  ir::ValueList a, scaling;
  std::vector<int64_t> slots;
  Dim width = 0;
  std::vector<std::vector<int64_t>> columns;  // of each
  for (const auto* each : siblings) {
    auto& begin = columns.emplace_back();
    for (auto* part : *ir::values_of(*each, "a")) {
      begin.push_back(width);
      width += rank_of(part);
      a.push_back(part);
    }
    std::ranges::copy(*ir::values_of(*each, "scaling"), std::back_inserter(scaling));
    std::ranges::copy(*ir::ints_of(*each, "slots"), std::back_inserter(slots));
  }
  auto* x = ir::value_of(first, "x");
  auto* table = ir::value_of(first, "table");
  auto type = a.front()->type();
  type.sizes = {x->type().sizes[0], width};
  type.strides = {width, 1};
  auto& lower = graph.add_node(
      "graft::low_rank_lower",
      {{"x", x}, {"a", a}, {"scaling", scaling}, {"table", table}, {"slots", ir::Attribute(slots)}}, {type},
      &first);
  lower.set_scope(first.scope());
  for (size_t i = 0; i < siblings.size(); ++i) {
    auto& add = *siblings[i];
    std::vector<ir::NamedArgument> arguments{{"self", ir::value_of(add, "self")},
                                             {"t", &lower.output()},
                                             {"b", *ir::values_of(add, "b")},
                                             {"table", table},
                                             {"slots", ir::Attribute(*ir::ints_of(add, "slots"))},
                                             {"columns", ir::Attribute(columns[i])}};
    if (const auto places = ir::ints_of(add, "places"))
      arguments.push_back({"places", ir::Attribute(*places)});
    auto& lift = graph.add_node("graft::low_rank_lift", std::move(arguments), {add.output().type()}, &add);
    lift.set_scope(add.scope());
    graph.replace_uses(add.output(), lift.output());
    graph.erase(add);
  }
}

}  // namespace

void split_low_rank_adds(ir::Graph& graph, bool has_halves) {
  if (!has_halves) return;
  std::map<std::pair<const Value*, const Value*>, std::vector<Node*>> by_input;  // and table
  std::vector<std::vector<Node*>*> order;
  std::vector<Node*> alone;
  for (auto* node : ir::nodes_of(graph)) {
    if (node->op() != "graft::low_rank_add") continue;
    if (!is_free(*node)) {
      alone.push_back(node);
      continue;
    }
    auto& siblings = by_input[{ir::value_of(*node, "x"), ir::value_of(*node, "table")}];
    if (siblings.empty()) order.push_back(&siblings);
    siblings.push_back(node);
  }
  for (const auto* siblings : order) split(graph, *siblings);
  for (auto* node : alone) split(graph, {node});
}

}  // namespace graft::passes
