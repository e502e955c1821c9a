#include "passes/sums_into_scatters.h"

#include <algorithm>
#include <set>

#include "ir/arguments.h"

namespace graft::passes {
namespace {

using ir::DType;
using ir::Node;
using ir::Value;

bool is_zeros(const Value& value) {
  const auto* node = value.producer();
  static const std::set<std::string> zeros = {"aten::zeros", "aten::zeros_like", "aten::new_zeros"};
  if (!node) return false;
  return zeros.contains(node->op()) ||
         (node->op() == "aten::full" && ir::number_of(*node, "fill_value") == 0);
}

bool adds_to_zeros(const Node& node) {
  static const std::set<std::string> known = {"aten::index_add", "aten::scatter_add", "aten::index_put",
                                              "aten::_index_put_impl"};
  if (!known.contains(node.op()) || !is_zeros(*ir::value_of(node, "self"))) return false;
  return node.op().find("index_put") == std::string::npos || ir::bool_of(node, "accumulate", false);
}

/// As an index_add it would look at all tokens alike.
bool is_plain_embedding_gradient(const Node& node) {
  return node.op() == "aten::embedding_dense_backward" && ir::int_of(node, "padding_idx").value_or(-1) < 0 &&
         !ir::bool_of(node, "scale_grad_by_freq", false) &&
         ir::value_of(node, "grad_output")->type().is_contiguous() &&
         ir::value_of(node, "indices")->type().is_contiguous();
}

Value& flattened(ir::Graph& graph, Value& value, std::vector<int64_t> sizes, Node& before) {
  if (value.type().sizes == sizes) return value;
  auto type = ir::contiguous(value.type().dtype, sizes, value.type().device);
  auto& view = graph.add_node("aten::view", {{"self", &value}, {"size", ir::Attribute(std::move(sizes))}},
                              {std::move(type)}, &before);
  view.set_scope(before.scope());
  return view.output();
}

/// The scatter that makes the summand, if nobody else needs it. Half types are rounded after each addition:
/// to add to what is there already would round more.
Node* scatter_behind(const Value& summand, const Node& sum, const ir::Graph& graph) {
  auto* node = summand.producer();
  const auto dtype = summand.type().dtype;
  if (!node || summand.users().size() != 1 || graph.is_result(summand) ||
      summand.type() != sum.output().type() || (dtype != DType::f32 && dtype != DType::f64))
    return nullptr;
  return adds_to_zeros(*node) || is_plain_embedding_gradient(*node) ? node : nullptr;
}

Value& scatter_onto(ir::Graph& graph, Value& onto, const Node& scatter, Node& before) {
  std::string op = scatter.op();
  std::vector<ir::NamedArgument> arguments;
  if (op == "aten::embedding_dense_backward") {
    auto &grad = *ir::value_of(scatter, "grad_output"), &indices = *ir::value_of(scatter, "indices");
    const int64_t tokens = indices.type().numel(), width = onto.type().sizes[1];
    op = "aten::index_add";
    arguments = {{"self", &onto},
                 {"dim", ir::Attribute(int64_t{0})},
                 {"index", &flattened(graph, indices, {tokens}, before)},
                 {"source", &flattened(graph, grad, {tokens, width}, before)}};
  } else {
    arguments = scatter.arguments();
    for (auto& argument : arguments)
      if (argument.name == "self") argument.value = &onto;
  }
  auto& node = graph.add_node(op, std::move(arguments), {onto.type()}, &before);
  node.set_scope(scatter.scope());
  return node.output();
}

}  // namespace

void fold_sums_into_scatters(ir::Graph& graph) {
  for (auto* node : ir::nodes_of(graph)) {
    if (node->op() != "aten::add.Tensor" || ir::number_of(*node, "alpha").value_or(1) != 1) continue;
    auto *a = ir::value_of(*node, "self"), *b = ir::value_of(*node, "other");
    if (!a || !b || a == b) continue;
    for (auto [summand, onto] : {std::pair(b, a), std::pair(a, b)}) {
      auto* scatter = scatter_behind(*summand, *node, graph);
      if (!scatter || onto->type() != node->output().type()) continue;
      auto& sum = scatter_onto(graph, *onto, *scatter, *node);
      graph.replace_uses(node->output(), sum);
      graph.erase(*node);
      graph.erase(*scatter);
      break;
    }
  }
}

}  // namespace graft::passes
