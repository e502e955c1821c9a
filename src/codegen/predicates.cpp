#include "codegen/predicates.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "ir/arguments.h"
#include "ir/op_traits.h"

namespace graft::codegen {
namespace {

using ir::Node;
using ir::Value;
using Slots = std::set<int64_t>;

bool is_gate(const Node& node) { return node.op() == "graft::gate_keep" || node.op() == "graft::gate_put"; }

/// The name without its overload.
std::string_view plain_name(const Node& node) {
  const std::string_view op = node.op();
  return op.substr(0, op.find('.'));
}

/// For whom a value matters: for some slots only, or for everybody.
struct Demand {
  bool everybody = false;
  Slots slots;

  void join(const Demand& other) {
    everybody |= other.everybody;
    slots.insert(other.slots.begin(), other.slots.end());
  }
};

class Analysis {
 public:
  explicit Analysis(const ir::Graph& graph) {
    for (const auto& node : graph.nodes()) find_zeros(*node);
    for (const auto* result : graph.results())
      if (result) demand_[result].everybody = true;
    for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) pass_on(**node);
  }

  /// The slots that a value waits for: if none of them is in use it need not be computed.
  std::optional<Slots> needed_by(const Value& value) const {
    if (const auto zero = zeros_.find(&value); zero != zeros_.end() && !zero->second.empty())
      return Slots{*zero->second.begin()};
    const auto found = demand_.find(&value);
    if (found == demand_.end() || found->second.everybody) return std::nullopt;
    return found->second.slots;
  }

 private:
  Slots zeros(const Value* value) const {
    const auto found = value ? zeros_.find(value) : zeros_.end();
    return found == zeros_.end() ? Slots{} : found->second;
  }

  static Slots both(const Slots& a, const Slots& b) {
    Slots common;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(common, common.end()));
    return common;
  }
  static Slots either(Slots a, const Slots& b) {
    a.insert(b.begin(), b.end());
    return a;
  }

  /// The slots without which a node's results are all zeros.
  Slots zero_slots(const Node& node) const {
    const auto of = [&](std::string_view name) { return zeros(ir::value_of(node, name)); };
    const auto name = plain_name(node);
    if (name == "graft::gate_keep") return either({*ir::int_of(node, "slot")}, of("value"));
    if (name == "graft::gate_put") return both(of("made"), of("old"));
    if (name == "aten::mm" || name == "aten::bmm") return either(of("self"), of("mat2"));
    if (name == "aten::mul") return either(of("self"), of("other"));
    if (name == "aten::add" || name == "aten::sub") return both(of("self"), of("other"));
    if (name == "aten::convolution_backward") return of("grad_output");
    // What is linear in its one argument, and what only moves elements.
    static const std::set<std::string_view> linear = {
        "aten::neg",   "aten::sum",      "aten::mean",  "aten::div",        "aten::clone", "aten::_to_copy",
        "aten::alias", "aten::contiguous", "aten::copy"};
    if (linear.contains(name) || ir::kind_of(node.op()) == ir::OpKind::view) return of("self");
    return {};
  }

  void find_zeros(const Node& node) {
    if (ir::must_run(node)) return;
    if (const auto slots = zero_slots(node); !slots.empty())
      for (const auto& output : node.outputs()) zeros_[output.get()] = slots;
  }

  void pass_on(const Node& node) {
    Demand demand;
    demand.everybody = ir::must_run(node);
    for (const auto& output : node.outputs())
      if (const auto found = demand_.find(output.get()); found != demand_.end()) demand.join(found->second);
    // Known to be zero without them, it asks for its arguments only when they are in use.
    if (!ir::must_run(node) && !node.outputs().empty())
      if (const auto zero = zeros(node.outputs()[0].get()); !zero.empty()) demand = {false, {*zero.begin()}};
    const auto* gated = is_gate(node) ? ir::value_of(node, node.op() == "graft::gate_put" ? "made" : "value") : nullptr;
    for (const auto* input : node.inputs()) {
      const bool behind = input == gated && input != ir::value_of(node, "old");
      demand_[input].join(behind ? Demand{false, {*ir::int_of(node, "slot")}} : demand);
    }
  }

  std::unordered_map<const Value*, Slots> zeros_;
  std::unordered_map<const Value*, Demand> demand_;
};

/// The slots that all of a step's results wait for.
std::optional<Slots> slots_of(const Step& step, const Analysis& analysis) {
  std::vector<const Value*> made;
  if (step.external) {
    if (ir::must_run(*step.external) || ir::kind_of(step.external->op()) == ir::OpKind::view)
      return std::nullopt;
    for (const auto& output : step.external->outputs()) made.push_back(output.get());
  } else {
    for (size_t i = 0; i < step.buffers.size(); ++i)
      if (step.kernel.buffers[i].written) made.push_back(step.buffers[i]);
  }
  Slots all;
  for (const auto* value : made) {
    const auto slots = analysis.needed_by(*value);
    if (!slots) return std::nullopt;
    all.insert(slots->begin(), slots->end());
  }
  return all.empty() ? std::nullopt : std::optional(all);
}

}  // namespace

Predicates predicates(const ir::Graph& graph, const Schedule& schedule) {
  Predicates found;
  found.steps.resize(schedule.steps.size());
  for (const auto& node : graph.nodes()) {
    if (!is_gate(*node)) continue;
    const auto* column = ir::value_of(*node, "column");
    if (!root_of(*column).producer()) found.columns.emplace(*ir::int_of(*node, "slot"), column);
  }
  if (found.columns.empty()) return found;
  const Analysis analysis(graph);
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    if (const auto slots = slots_of(schedule.steps[i], analysis);
        slots && std::all_of(slots->begin(), slots->end(),
                             [&](int64_t slot) { return found.columns.contains(slot); }))
      found.steps[i].emplace(slots->begin(), slots->end());
  return found;
}

}  // namespace graft::codegen
