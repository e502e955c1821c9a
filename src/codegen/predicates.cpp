#include "codegen/predicates.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "ir/product.h"

namespace graft::codegen {
namespace {

using ir::Node;
using ir::Value;
using Slots = std::set<int64_t>;

bool is_gate(const Node& node) { return node.op() == "graft::gate_keep" || node.op() == "graft::gate_put"; }
/// Looks at the table itself.
bool is_low_rank_add(const Node& node) {
  return node.op() == "graft::low_rank_add" || node.op() == "graft::low_rank_lift";
}

Slots slots_of(const Node& gate) {
  const auto listed = *ir::ints_of(gate, "slots");
  return {listed.begin(), listed.end()};
}

/// Also of the product that has an operator of its own.
std::optional<ir::Product> product_of(const Node& node) {
  if (node.op() != "graft::float_mm") return ir::as_product(node);
  return ir::Product{
      .a = ir::value_of(node, "a"), .b = ir::value_of(node, "b"), .added = ir::value_of(node, "added")};
}

/// What the product is added to, where adds_zeros() gives something.
const Value* added_to(const Node& node) {
  return is_low_rank_add(node) ? ir::value_of(node, "self") : product_of(node)->added;
}

/// For whom a value matters: if none of the slots is in use, for nobody.
struct Demand {
  bool everybody = false;
  Slots slots = {};
  bool finite = false;  ///< somebody multiplies it by what is zero then

  void join(const Demand& other) {
    everybody |= other.everybody;
    finite |= other.finite;
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

  /// The slots without which a product gives what it adds to. Of a batch of them that is not asked: a run has
  /// no way to pass on what one adds to.
  std::optional<Slots> adds_zeros(const Node& node) const {
    if (is_low_rank_add(node)) return slots_of(node);
    const auto product = product_of(node);
    if (!product || product->batched || !product->added || product->beta != 1 ||
        product->added->type() != node.output().type())
      return std::nullopt;
    return either(zeros(product->a), zeros(product->b));
  }

  /// Nothing where the value is always needed. `finite`: it must be zero when it is not computed.
  std::optional<Demand> condition(const Value& value) const {
    if (const auto zero = zeros_.find(&value); zero != zeros_.end())
      return Demand{.slots = zero->second, .finite = true};
    const auto found = demand_.find(&value);
    if (found == demand_.end() || found->second.everybody) return std::nullopt;
    auto demand = found->second;
    // A whole number may be an index, which a kernel that runs for others checks in any case: 0 is in range.
    demand.finite |= !ir::is_floating(value.type().dtype);
    return demand;
  }

 private:
  /// The slots without any of which a value is all zeros; nothing: it may be anything.
  std::optional<Slots> zeros(const Value* value) const {
    const auto found = value ? zeros_.find(value) : zeros_.end();
    return found == zeros_.end() ? std::nullopt : std::optional(found->second);
  }
  static std::optional<Slots> both(const std::optional<Slots>& a, const std::optional<Slots>& b) {
    if (!a || !b) return std::nullopt;
    auto all = *a;
    all.insert(b->begin(), b->end());
    return all;
  }
  static std::optional<Slots> either(const std::optional<Slots>& a, const std::optional<Slots>& b) {
    if (!a || !b) return a ? a : b;
    return a->size() <= b->size() ? a : b;
  }

  std::optional<Slots> zeros_of_results(const Node& node) const {
    const auto of = [&](std::string_view name) { return zeros(ir::value_of(node, name)); };
    const auto name = ir::without_overload(node.op());
    if (name == "graft::gate_keep") return either(slots_of(node), of("value"));
    if (name == "graft::gate_put") return both(of("made"), of("old"));
    if (const auto product = product_of(node)) {
      const auto made = either(zeros(product->a), zeros(product->b));
      return product->added ? both(zeros(product->added), made) : made;
    }
    if (name == "aten::cat") {
      std::optional<Slots> all = Slots{};
      if (const auto* parts = ir::values_of(node, "tensors"))
        for (const auto* part : *parts) all = both(all, zeros(part));
      return all;
    }
    if (name == "aten::mul") return either(of("self"), of("other"));
    if (name == "aten::add" || name == "aten::sub") return both(of("self"), of("other"));
    if (name == "aten::convolution_backward") return of("grad_output");
    // What is linear in its one argument, and what only moves elements.
    static const std::set<std::string_view> linear = {"aten::neg",   "aten::sum",        "aten::mean",
                                                      "aten::div",   "aten::clone",      "aten::_to_copy",
                                                      "aten::alias", "aten::contiguous", "aten::copy"};
    if (linear.contains(name) || ir::kind_of(node.op()) == ir::OpKind::view) return of("self");
    return std::nullopt;
  }

  void find_zeros(const Node& node) {
    if (ir::must_run(node)) return;
    if (const auto slots = zeros_of_results(node))
      for (const auto& output : node.outputs()) zeros_[output.get()] = *slots;
  }

  void pass_on(const Node& node) {
    Demand demand{.everybody = ir::must_run(node)};
    for (const auto& output : node.outputs())
      if (const auto found = demand_.find(output.get()); found != demand_.end()) demand.join(found->second);
    // Known to be zero without them, it asks for its arguments only when they are in use; but it may be
    // computed all the same, in a kernel with others.
    if (!node.outputs().empty())
      if (const auto zero = zeros(node.outputs()[0].get())) demand = {.slots = *zero, .finite = true};
    const auto* gated =
        is_gate(node) ? ir::value_of(node, node.op() == "graft::gate_put" ? "made" : "value") : nullptr;
    const auto added = adds_zeros(node);
    for (const auto* input : node.inputs()) {
      if (input == gated && input != ir::value_of(node, "old"))
        demand_[input].join({.slots = slots_of(node)});
      else if (added && input != added_to(node))
        demand_[input].join({.slots = *added, .finite = !is_low_rank_add(node)});
      else
        demand_[input].join(demand);
    }
  }

  std::unordered_map<const Value*, Slots> zeros_;
  std::unordered_map<const Value*, Demand> demand_;
};

/// What all of a step's results wait for.
std::optional<Demand> condition_of(const Step& step, const Analysis& analysis) {
  std::vector<const Value*> made;
  if (step.external) {
    if (ir::must_run(*step.external) || ir::kind_of(step.external->op()) == ir::OpKind::view)
      return std::nullopt;
    for (const auto& output : step.external->outputs()) made.push_back(output.get());
  } else {
    for (size_t i = 0; i < step.buffers.size(); ++i)
      if (step.kernel.buffers[i].written) made.push_back(step.buffers[i]);
  }
  Demand all;
  for (const auto* value : made) {
    const auto condition = analysis.condition(*value);
    if (!condition) return std::nullopt;
    all.join(*condition);
    // A kernel that runs all the same may look something up by a whole number, in what a gate then leaves
    // out; anything would be no place, zero is one in every table.
    if (!ir::is_floating(value->type().dtype)) all.finite = true;
  }
  return all.slots.empty() ? std::nullopt : std::optional(all);
}

}  // namespace

Predicates predicates(const ir::Graph& graph, const Schedule& schedule) {
  Predicates found;
  found.steps.resize(schedule.steps.size());
  found.otherwise.resize(schedule.steps.size());
  for (const auto& node : graph.nodes()) {
    if (!is_gate(*node) && !is_low_rank_add(*node)) continue;
    const auto* table = ir::value_of(*node, "table");
    // One table, which is there before the program starts.
    if (table->producer() || table->type().sizes.size() != 2 || (found.table && table != found.table))
      return {found.steps, found.otherwise, nullptr};
    found.table = table;
  }
  if (!found.table) return found;
  const Analysis analysis(graph);
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    if (const auto condition = condition_of(schedule.steps[i], analysis)) {
      found.steps[i].emplace(condition->slots.begin(), condition->slots.end());
      found.otherwise[i] = condition->finite ? Predicates::Otherwise::zeros : Predicates::Otherwise::anything;
    } else if (const auto* call = schedule.steps[i].external) {
      if (const auto slots = analysis.adds_zeros(*call)) {
        found.steps[i].emplace(slots->begin(), slots->end());
        found.otherwise[i] = Predicates::Otherwise::self;
      }
    }
  return found;
}

}  // namespace graft::codegen
