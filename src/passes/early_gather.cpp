#include "passes/early_gather.h"

#include <algorithm>
#include <set>

#include "ir/arguments.h"

namespace graft::passes {
namespace {

using ir::Node;
using ir::Value;

/// Element by element, with nothing about shapes among the arguments.
bool is_arithmetic(const Node& node) {
  static const std::set<std::string> known = {"aten::add.Tensor", "aten::sub.Tensor", "aten::mul.Tensor",
                                              "aten::div.Tensor", "aten::add.Scalar", "aten::sub.Scalar",
                                              "aten::mul.Scalar", "aten::div.Scalar", "aten::neg",
                                              "aten::exp",        "aten::log",        "aten::_to_copy"};
  return known.contains(node.op());
}

class Picker {
 public:
  /// Takes apart a gather whose index has the source's sizes but for the dimension that is picked from.
  Picker(ir::Graph& graph, Node& gather)
      : graph_(graph), gather_(gather), sizes_(ir::value_of(gather, "self")->type().sizes) {
    dim_ = ir::wrapped(*ir::int_of(gather, "dim"), sizes_.size());
  }

  bool fits() const {
    auto index = ir::value_of(gather_, "index")->type().sizes;
    if (sizes_.empty() || index.size() != sizes_.size() || index[at()] >= sizes_[at()]) return false;
    index[at()] = sizes_[at()];
    return index == sizes_;
  }

  /// Whether a node can be computed from what is picked of its arguments.
  bool passes(const Value& value) const {
    if (viewed_cast(value)) return true;
    const auto* node = value.producer();
    if (!node || !is_arithmetic(*node) || value.type().sizes != sizes_) return false;
    const auto inputs = node->inputs();
    return std::all_of(inputs.begin(), inputs.end(),
                       [&](const Value* v) { return same_along(*v) || v->type().sizes == sizes_; });
  }

  Value& picked(Value& value) {
    if (const auto* cast = viewed_cast(value)) {
      auto& source = *ir::value_of(*cast, "self");
      auto type = ir::contiguous(source.type().dtype, sizes_, source.type().device);
      auto& view = graph_.add_node("aten::view", {{"self", &source}, {"size", ir::Attribute(sizes_)}},
                                   {std::move(type)}, &gather_);
      view.set_scope(gather_.scope());
      auto arguments = cast->arguments();
      for (auto& argument : arguments)
        if (std::holds_alternative<Value*>(argument.value)) argument.value = &picked(view.output());
      return add(cast->op(), std::move(arguments), value);
    }
    if (!passes(value))
      return add("aten::gather",
                 {{"self", &value}, {"dim", ir::Attribute(dim_)}, {"index", ir::value_of(gather_, "index")}},
                 value);
    auto arguments = value.producer()->arguments();
    for (auto& argument : arguments)
      if (auto* operand = std::get_if<Value*>(&argument.value); operand && !same_along(**operand))
        argument.value = &picked(**operand);
    return add(value.producer()->op(), std::move(arguments), value);
  }

 private:
  size_t at() const { return static_cast<size_t>(dim_); }

  /// The cast that the value shows in another shape, as logits that become floats before they are flattened:
  /// then it may as well be a cast of what has that shape already.
  const Node* viewed_cast(const Value& value) const {
    const auto* view = value.producer();
    if (!view || (view->op() != "aten::view" && view->op() != "aten::_unsafe_view") ||
        value.type().sizes != sizes_)
      return nullptr;
    const auto* cast = ir::value_of(*view, "self")->producer();
    const bool is_cast = cast && cast->op() == "aten::_to_copy";
    return is_cast && ir::value_of(*cast, "self")->type().is_contiguous() ? cast : nullptr;
  }

  /// Whether the value is broadcast along the dimension.
  bool same_along(const Value& value) const {
    const auto& sizes = value.type().sizes;
    const size_t from_the_end = sizes_.size() - at();
    return sizes.size() < from_the_end || sizes[sizes.size() - from_the_end] == 1;
  }

  Value& add(const std::string& op, std::vector<ir::NamedArgument> arguments, const Value& whole) {
    auto type = ir::contiguous(whole.type().dtype, gather_.output().type().sizes, whole.type().device);
    auto& node = graph_.add_node(op, std::move(arguments), {std::move(type)}, &gather_);
    node.set_scope(gather_.scope());
    return node.output();
  }

  ir::Graph& graph_;
  Node& gather_;
  std::vector<int64_t> sizes_;
  int64_t dim_ = 0;
};

}  // namespace

void gather_early(ir::Graph& graph) {
  for (auto* node : ir::nodes_of(graph)) {
    if (node->op() != "aten::gather") continue;
    auto& source = *ir::value_of(*node, "self");
    Picker picker(graph, *node);
    if (!picker.fits() || !picker.passes(source)) continue;
    graph.replace_uses(node->output(), picker.picked(source));
    graph.erase(*node);
  }
}

}  // namespace graft::passes
