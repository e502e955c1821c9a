#include "autograd/absent_tangents.h"

#include <algorithm>
#include <unordered_set>

#include "ir/arguments.h"
#include "ir/clone.h"
#include "ir/verifier.h"

namespace graft::autograd {
namespace {

using ir::Node;
using ir::Value;

class Remover {
 public:
  Remover(const ir::Graph& backward, const std::vector<bool>& absent) : backward_(backward) {
    const size_t first = backward.inputs().size() - absent.size();
    for (size_t i = 0; i < absent.size(); ++i) {
      const auto* tangent = backward.inputs()[first + i].get();
      dependent_.insert(tangent);
      if (absent[i]) absent_.insert(tangent);
    }
  }

  WithoutTangents run() {
    find_absent();
    for (size_t i = 0; i < backward_.inputs().size(); ++i)
      if (const auto* input = backward_.inputs()[i].get(); !absent_.contains(input))
        map_[input] = &made_.graph.add_input(backward_.input_name(i), input->type());
    add_zeros();
    for (const auto& node : backward_.nodes())
      if (const Value* other = the_present_term(*node))
        map_[&node->output()] = map_.at(other);
      else if (!is_absent(*node))
        ir::copy_node(*node, made_.graph, map_);
    for (const auto* result : backward_.results())
      made_.graph.add_result(result && !absent_.contains(result) ? map_.at(result) : nullptr);
    ir::verify(made_.graph);
    return std::move(made_);
  }

 private:
  bool is_absent(const Node& node) const {
    return std::ranges::any_of(node.outputs(), [&](const auto& v) { return absent_.contains(v.get()); });
  }

  void find_absent() {
    for (const auto& node : backward_.nodes()) {
      const auto inputs = node->inputs();
      const auto depends = [&](const Value* v) { return dependent_.contains(v); };
      if (std::ranges::none_of(inputs, depends)) continue;
      // A gradient may be the same whatever the tangent (zeros, of an overwritten value), and counts.
      const bool is_sum = node->op() == "aten::add.Tensor";
      const bool absent = std::ranges::all_of(inputs, [&](const Value* v) {
        return (!dependent_.contains(v) && !is_sum) || absent_.contains(v);
      });
      for (const auto& output : node->outputs()) {
        dependent_.insert(output.get());
        if (absent) absent_.insert(output.get());
      }
    }
  }

  /// A sum of one that is there and one that is not is the one, as it is. Null if the node is none such.
  const Value* the_present_term(const Node& node) const {
    if (node.op() != "aten::add.Tensor" || is_absent(node)) return nullptr;
    const auto* self = ir::value_of(node, "self");
    const auto* other = ir::value_of(node, "other");
    if (!self || !other || absent_.contains(self) == absent_.contains(other)) return nullptr;
    const auto* present = absent_.contains(self) ? other : self;
    const bool scaled = present == other && ir::number_of(node, "alpha").value_or(1) != 1;
    return !scaled && present->type() == node.output().type() ? present : nullptr;
  }

  void add_zeros() {
    std::unordered_set<const Value*> seen;
    for (const auto& node : backward_.nodes()) {
      if (is_absent(*node) || the_present_term(*node)) continue;
      for (const auto* input : node->inputs()) {
        if (!absent_.contains(input) || !seen.insert(input).second) continue;
        map_[input] = &made_.graph.add_input("zeros." + std::to_string(made_.zeros.size()), input->type());
        made_.zeros.push_back(input->type());
      }
    }
  }

  const ir::Graph& backward_;
  std::unordered_set<const Value*> dependent_, absent_;
  ir::ValueMap map_;
  WithoutTangents made_;
};

}  // namespace

WithoutTangents without_tangents(const ir::Graph& backward, const std::vector<bool>& absent) {
  return Remover(backward, absent).run();
}

}  // namespace graft::autograd
