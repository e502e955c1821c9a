#include "passes/few_queries.h"

#include <cmath>
#include <set>

#include "ir/arguments.h"
#include "ir/op_traits.h"

namespace graft::passes {
namespace {

using ir::Node;
using ir::Value;

/// The forward passes, all with the same names for what they have in common.
bool is_attention(const Node& node) {
  static const std::set<std::string_view> known = {"aten::_scaled_dot_product_cudnn_attention",
                                                   "aten::_scaled_dot_product_efficient_attention",
                                                   "aten::_scaled_dot_product_flash_attention"};
  return known.contains(node.op());
}

/// Keys or values [batch, heads, length, size] of which each head is there several times, one after the
/// other: as they were before. Else as they are.
Value* unrepeated(Value* repeated) {
  const auto* reshape = repeated->producer();
  if (!reshape || !ir::is_reshape(*reshape)) return repeated;
  const auto* copied = ir::value_of(*reshape, "self");
  if (copied->producer() && copied->producer()->op() == "aten::clone")
    copied = ir::value_of(*copied->producer(), "self");
  const auto* expand = copied->producer();
  if (!expand || expand->op() != "aten::expand") return repeated;
  const auto* unsqueeze = ir::value_of(*expand, "self")->producer();
  if (!unsqueeze || unsqueeze->op() != "aten::unsqueeze" || ir::int_of(*unsqueeze, "dim") != 2)
    return repeated;
  auto* source = ir::value_of(*unsqueeze, "self");
  const auto &all = copied->type().sizes, &one = source->type().sizes, &given = repeated->type().sizes;
  const bool fits = one.size() == 4 && all.size() == 5 && given.size() == 4 && all[0] == one[0] &&
                    all[1] == one[1] && all[3] == one[2] && all[4] == one[3] && given[0] == one[0] &&
                    given[1] == all[1] * all[2] && given[2] == one[2] && given[3] == one[3];
  return fits ? source : repeated;
}

bool is_plain(const Node& node) {
  if (ir::number_of(node, "dropout_p").value_or(0) != 0) return false;
  const auto* causal = ir::attribute_of(node, "is_causal");
  if (causal && std::holds_alternative<bool>(*causal) && std::get<bool>(*causal)) return false;
  for (size_t i = 1; i < node.outputs().size(); ++i)
    if (!node.output(i).users().empty()) return false;
  return true;
}

bool has_few(const Node& node, int64_t most) {
  const auto &q = ir::value_of(node, "query")->type(), &k = ir::value_of(node, "key")->type(),
             &v = ir::value_of(node, "value")->type();
  return q.sizes.size() == 4 && q.sizes[2] >= 1 && q.sizes[2] <= most && k.sizes.size() == 4 &&
         k.sizes[2] > 0 && k.sizes[3] == v.sizes[3] && ir::is_half(q.dtype) && k.sizes[1] > 0;
}

bool gives_others(const ir::Graph& graph, const Node& node) {
  for (size_t i = 1; i < node.outputs().size(); ++i)
    if (graph.is_result(node.output(i))) return true;
  return false;
}

void rewrite(ir::Graph& graph, Node& node) {
  auto* query = ir::value_of(node, "query");
  const auto size = static_cast<double>(query->type().sizes[3]);
  std::vector<ir::NamedArgument> arguments = {{"query", query},
                                              {"key", unrepeated(ir::value_of(node, "key"))},
                                              {"value", unrepeated(ir::value_of(node, "value"))}};
  if (auto* bias = ir::value_of(node, "attn_bias")) arguments.push_back({"bias", bias});
  arguments.push_back({"scale", ir::Attribute(ir::number_of(node, "scale").value_or(1 / std::sqrt(size)))});
  const auto type = node.output().type();
  arguments.push_back({"strides", ir::Attribute(type.strides)});
  auto& made = graph.add_node("graft::attend", std::move(arguments), {type}, &node);
  made.set_scope(node.scope());
  graph.replace_uses(node.output(), made.output());
  graph.erase(node);
}

}  // namespace

void attend_with_few_queries(ir::Graph& graph, int64_t queries) {
  if (queries == 0) return;
  for (auto* node : ir::nodes_of(graph))
    if (is_attention(*node) && has_few(*node, queries) && is_plain(*node) && !gives_others(graph, *node))
      rewrite(graph, *node);
}

}  // namespace graft::passes
