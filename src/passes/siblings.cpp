#include "passes/siblings.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "ir/product.h"

namespace graft::passes {
namespace {

using ir::Dim;
using ir::Node;
using ir::Value;

/// Views that are the same ones of any strides.
bool follows_strides(const Node& node) {
  static constexpr std::array<std::string_view, 10> kinds{
      "aten::transpose.int", "aten::permute",      "aten::t",          "aten::unsqueeze", "aten::squeeze.dim",
      "aten::squeeze.dims",  "aten::slice.Tensor", "aten::select.int", "aten::expand",    "aten::detach"};
  return std::ranges::find(kinds, node.op()) != kinds.end();
}

bool is_view(const Node& node) { return follows_strides(node) || ir::is_reshape(node); }

/// Of a view of [rows, width] the same where a row takes `wide` elements. Nothing if a dimension of it goes
/// past the end of a row.
std::optional<ir::TensorType> in_wider_rows(ir::TensorType type, Dim width, Dim wide) {
  Dim last_column = 0;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    auto& stride = type.strides[d];
    if (stride % width == 0)
      stride = stride / width * wide;
    else if (type.sizes[d] > 1)
      last_column += (type.sizes[d] - 1) * stride;
  }
  if (last_column >= width) return std::nullopt;
  return type;
}

bool views_can_be_columns(const Value& value, Dim width, const ir::Graph& graph) {
  if (graph.is_result(value) || !in_wider_rows(value.type(), width, width)) return false;
  return std::ranges::all_of(value.users(), [&](const Node* user) {
    if (!is_view(*user)) return ir::kind_of(user->op()) != ir::OpKind::view && !ir::must_run(*user);
    // What is not contiguous is perhaps copied.
    if (ir::is_reshape(*user) && !value.type().is_contiguous()) return false;
    return views_can_be_columns(user->output(), width, graph);
  });
}

void widen_views(ir::Graph& graph, Value& value, Dim width, Dim wide) {
  const auto users = value.users();  // a copy: the list changes
  for (auto* user : users) {
    if (!is_view(*user)) continue;
    auto& view = user->output();
    const auto type = *in_wider_rows(view.type(), width, wide);
    if (!ir::is_reshape(*user)) {
      view.set_type(type);
      widen_views(graph, view, width, wide);
      continue;
    }
    // One that never copies, nor asks for contiguous memory.
    auto& plain =
        graph.add_node("aten::view", {{"self", &value}, {"size", ir::Attribute(type.sizes)}}, {type}, user);
    plain.set_scope(user->scope());
    graph.replace_uses(view, plain.output());
    graph.erase(*user);
    widen_views(graph, plain.output(), width, wide);
  }
}

/// In the order of the graph: its x is there before it, and all that uses any of them comes after it.
const Sibling& first_of(const ir::Graph& graph, const std::vector<Sibling>& siblings) {
  for (const auto& node : graph.nodes())
    if (const auto found = std::ranges::find(siblings, node.get(), &Sibling::product);
        found != siblings.end())
      return *found;
  throw std::logic_error("siblings are not of this graph");
}

/// The adapters of all siblings on the product of all, in front of `before`; the product where there are
/// none.
Value* with_adapters(ir::Graph& graph, const std::vector<Sibling>& siblings, Value* x, Value* product,
                     Node* before) {
  ir::ValueList a, b, scaling;
  std::vector<int64_t> slots, places;
  const Node* any = nullptr;
  Dim start = 0;
  for (const auto& each : siblings) {
    if (const auto* add = each.adapters) {
      any = add;
      const auto& more = *ir::values_of(*add, "b");
      std::ranges::copy(*ir::values_of(*add, "a"), std::back_inserter(a));
      std::ranges::copy(more, std::back_inserter(b));
      std::ranges::copy(*ir::values_of(*add, "scaling"), std::back_inserter(scaling));
      std::ranges::copy(*ir::ints_of(*add, "slots"), std::back_inserter(slots));
      places.insert(places.end(), more.size(), start);
    }
    start += each.width;
  }
  if (!any) return product;
  auto& node = graph.add_node("graft::low_rank_add",
                              {{"self", product},
                               {"x", x},
                               {"a", a},
                               {"b", b},
                               {"scaling", scaling},
                               {"table", ir::value_of(*any, "table")},
                               {"slots", ir::Attribute(slots)},
                               {"places", ir::Attribute(places)}},
                              {product->type()}, before);
  node.set_scope(any->scope());
  return &node.output();
}

/// With the reshapes between the product and its adapters.
void erase_with_adapters(ir::Graph& graph, const Sibling& sibling) {
  auto* node = sibling.adapters ? sibling.adapters : sibling.product;
  while (node != sibling.product) {
    auto* before = ir::value_of(*node, "self")->producer();
    graph.erase(*node);
    node = before;
  }
  graph.erase(*sibling.product);
}

}  // namespace

std::optional<Sibling> sibling_of(ir::Node& node) {
  const auto product = ir::as_product(node);
  if (!product || product->added || product->batched || product->is_scaled()) return std::nullopt;
  const auto* transposes = product->b->producer();
  if (!transposes || transposes->op() != "aten::t") return std::nullopt;
  auto* weight = ir::value_of(*transposes, "self");
  if (!weight->type().is_contiguous() || !node.output().type().is_contiguous()) return std::nullopt;
  return Sibling{&node, product->a, weight, node.output().type().sizes[1]};
}

bool can_be_columns(const Sibling& sibling, const ir::Graph& graph) {
  return sibling.width > 0 && views_can_be_columns(sibling.result(), sibling.width, graph);
}

void join(ir::Graph& graph, const std::vector<Sibling>& siblings, const std::string& op,
          const ir::ValueList& rows) {
  auto& first = *first_of(graph, siblings).product;
  auto* const x = ir::as_product(first)->a;  // as it is now: it may be columns of a join before this one
  Dim wide = 0;
  for (const auto& each : siblings) wide += each.width;
  const auto type = first.output().type();
  const auto make = [&](const std::string& what, std::vector<ir::NamedArgument> arguments,
                        std::vector<Dim> sizes, std::vector<Dim> strides) {
    auto made = type;
    made.sizes = std::move(sizes);
    made.strides = std::move(strides);
    auto& node = graph.add_node(what, std::move(arguments), {made}, &first);
    node.set_scope(first.scope());
    return &node.output();
  };
  const Dim inner = x->type().sizes[1], count = x->type().sizes[0];
  std::vector<ir::NamedArgument> arguments{{"tensors", rows}};
  if (op == "aten::cat") arguments.push_back({"dim", ir::Attribute(int64_t{0})});
  auto* weight = make(op, std::move(arguments), {wide, inner}, {inner, 1});
  auto* turned = make("aten::t", {{"self", weight}}, {inner, wide}, {1, inner});
  auto* all = make("aten::mm", {{"self", x}, {"mat2", turned}}, {count, wide}, {wide, 1});
  all = with_adapters(graph, siblings, x, all, &first);
  Dim start = 0;
  std::vector<Value*> columns;  // before the first product goes, whose place they take
  for (const auto& each : siblings) {
    columns.push_back(make("aten::slice.Tensor",
                           {{"self", all},
                            {"dim", ir::Attribute(int64_t{1})},
                            {"start", ir::Attribute(int64_t{start})},
                            {"end", ir::Attribute(int64_t{start + each.width})},
                            {"step", ir::Attribute(int64_t{1})}},
                           {count, each.width}, {wide, 1}));
    start += each.width;
  }
  for (size_t i = 0; i < siblings.size(); ++i) {
    const auto& each = siblings[i];
    graph.replace_uses(each.result(), *columns[i]);
    widen_views(graph, *columns[i], each.width, wide);
    erase_with_adapters(graph, each);
  }
}

}  // namespace graft::passes
