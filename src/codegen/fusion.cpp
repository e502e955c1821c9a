#include "codegen/fusion.h"

#include <algorithm>
#include <sstream>

#include "codegen/fuser.h"
#include "ir/arguments.h"

namespace graft::codegen {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

// A value is computed again where it is needed if that takes at most so many cheap instructions and loads.
constexpr int max_inline_cost = 8, max_inline_leaves = 3;

bool expensive(const Node& node) {
  static const std::unordered_set<std::string> dear = {"aten::exp",           "aten::log",
                                                       "aten::tanh",          "aten::sigmoid",
                                                       "aten::erf",           "aten::gelu",
                                                       "aten::silu",          "aten::pow.Tensor_Tensor",
                                                       "aten::sin",           "aten::cos",
                                                       "aten::log1p",         "aten::expm1",
                                                       "aten::gelu_backward", "aten::silu_backward",
                                                       "aten::softplus",      "aten::elu",
                                                       "aten::elu_backward",  "aten::softplus_backward",
                                                       "aten::cat",           "aten::stack",
                                                       "aten::embedding",     "aten::index.Tensor",
                                                       "aten::gather",        "aten::index_select",
                                                       "aten::tan",           "aten::erfc",
                                                       "aten::exp2",          "aten::log2",
                                                       "aten::log10"};
  return dear.contains(node.op());
}

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
    }
  }
}

const Fuser::Cost& Fuser::cost(const Value& value) {
  const auto& root = root_of(value);
  if (const auto found = costs_.find(&root); found != costs_.end()) return found->second;
  Cost total;
  const auto* node = root.producer();
  if (!node || materialised_.contains(&root) || !is_pointwise(*node)) {
    total.leaves.insert(&root);
  } else {
    total.instructions = expensive(*node) ? 100 : 1;
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
  if (!root.producer() || materialised_.contains(&root) || !is_pointwise(*root.producer())) return false;
  const auto& c = cost(root);
  return c.instructions <= max_inline_cost && static_cast<int>(c.leaves.size()) <= max_inline_leaves;
}

void Fuser::place(const Node& node, size_t position) {
  if (view_source(node)) return;
  era_ += node.op() == "graft::boundary";
  if (fusible(node))
    for (Unit* unit : candidates(node))
      if (const auto space = unit->era == era_ ? fits(node, *unit) : std::nullopt) {
        unit->nodes.push_back(&node);
        unit->space = *space;
        unit->position = position;
        enter(node, *unit);
        return;
      }
  auto& unit = *units_.emplace_back(std::make_unique<Unit>());
  unit.external = !fusible(node);
  unit.nodes = {&node};
  unit.first = unit.position = position;
  unit.number = units_.size() - 1;
  unit.era = era_;
  if (is_pointwise(node))
    unit.space = space_over(node.output().type().sizes);
  else if (!unit.external)
    unit.space = space_over(ir::value_of(node, "self")->type().sizes, dims_reduced_by(node));
  enter(node, unit);
}

void Fuser::enter(const Node& node, Unit& unit) {
  units_of_[&node] = &unit;
  for (const auto* input : node.inputs()) {
    if (auto* from = unit_of(*input); from && from != &unit) reads_[&unit].insert(from);
    users_[&root_of(*input)].push_back(&unit);
  }
}

std::vector<Unit*> Fuser::candidates(const Node& node) {
  std::vector<Unit*> found;
  const auto add = [&](Unit* unit) {
    if (unit && !unit->external && std::find(found.begin(), found.end(), unit) == found.end())
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
      if (!users[i]->external && std::find(found.begin(), found.end(), users[i]) == found.end())
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

Schedule schedule(const Graph& graph) { return Fuser(graph).run(); }

std::string to_string(const Schedule& schedule) {
  std::ostringstream text;
  size_t kernels = 0;
  for (const auto& step : schedule.steps) {
    if (step.external) {
      text << "call " << ir::to_string(*step.external) << "\n";
      continue;
    }
    text << "kernel " << kernels++ << " over";
    for (const auto& dim : step.kernel.dims) text << " " << dim.extent << (dim.reduced ? " reduced" : "");
    text << "\n";
    for (size_t i = 0; i < step.buffers.size(); ++i)
      text << "  " << (step.kernel.buffers[i].written ? "writes" : "reads") << " %" << step.buffers[i]->id()
           << ": " << ir::to_string(step.buffers[i]->type()) << "\n";
    for (const auto* node : step.nodes) text << "    " << ir::to_string(*node) << "\n";
  }
  return text.str();
}

}  // namespace graft::codegen
