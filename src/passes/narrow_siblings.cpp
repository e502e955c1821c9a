#include "passes/narrow_siblings.h"

#include <algorithm>
#include <map>

#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "ir/product.h"

namespace graft::passes {
namespace {

using ir::Dim;
using ir::Node;
using ir::Value;

/// The inputs [n, k] that lie one below the other in a weight; nothing where it is made of something else.
std::optional<std::vector<Value*>> rows_of(Value& weight) {
  if (!weight.producer()) return std::vector<Value*>{&weight};
  if (weight.producer()->op() != "aten::cat" || ir::int_of(*weight.producer(), "dim").value_or(0) != 0)
    return std::nullopt;
  const auto* parts = ir::values_of(*weight.producer(), "tensors");
  if (!parts || std::any_of(parts->begin(), parts->end(), [](const Value* part) { return part->producer(); }))
    return std::nullopt;
  return *parts;
}

struct Narrow {
  Node* product;
  Value* x;  // what it multiplies with the weight
  std::vector<Value*> rows;
  Dim width;
};

std::optional<Narrow> narrow_of(Node& node, Dim most) {
  const auto product = ir::as_product(node);
  if (!product || product->added || product->batched) return std::nullopt;
  const auto* transposes = product->b->producer();
  const auto width = node.output().type().sizes[1];
  if (width > most || !transposes || transposes->op() != "aten::t") return std::nullopt;
  auto* weight = ir::value_of(*transposes, "self");
  if (!weight->type().is_contiguous() || !node.output().type().is_contiguous()) return std::nullopt;
  auto rows = rows_of(*weight);
  if (!rows) return std::nullopt;
  return Narrow{&node, product->a, std::move(*rows), width};
}

/// [rows, width] with these strides, its rows split up as in `sizes`; nothing if that splits columns too.
std::optional<ir::TensorType> split_rows(ir::TensorType type, const std::vector<Dim>& sizes) {
  if (sizes.empty() || sizes.back() != type.sizes[1]) return std::nullopt;
  auto stride = type.strides[0];
  std::vector<Dim> strides(sizes.size(), 1);
  for (size_t i = sizes.size() - 1; i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i];
  }
  type.sizes = sizes;
  type.strides = strides;
  return type;
}

/// Every use of `old` becomes one of `now`, which has other strides; reshapes of it see `columns` instead.
void replace(ir::Graph& graph, Value& old, Value& now, Value& columns) {
  const auto users = old.users();  // a copy: the list changes
  for (auto* user : users) {
    if (!ir::is_reshape(*user)) continue;
    const auto type = *split_rows(columns.type(), user->output().type().sizes);
    auto& view =
        graph.add_node("aten::view", {{"self", &columns}, {"size", ir::Attribute(type.sizes)}}, {type}, user);
    view.set_scope(user->scope());
    replace(graph, user->output(), view.output(), columns);
    graph.erase(*user);
  }
  graph.replace_uses(old, now);
}

/// Whether all that is done with a product can be done with some columns of a wider one. Other views than
/// reshapes have strides of their own.
bool can_be_columns(const Value& value, Dim width, const ir::Graph& graph) {
  if (graph.is_result(value)) return false;
  return std::all_of(value.users().begin(), value.users().end(), [&](const Node* user) {
    if (!ir::is_reshape(*user)) return ir::kind_of(user->op()) != ir::OpKind::view && !ir::must_run(*user);
    const auto& sizes = user->output().type().sizes;
    return !sizes.empty() && sizes.back() == width && can_be_columns(user->output(), width, graph);
  });
}

void join(ir::Graph& graph, const std::vector<Narrow>& siblings) {
  auto& first = *siblings.front().product;
  ir::ValueList rows;
  Dim width = 0;
  for (const auto& each : siblings) {
    rows.insert(rows.end(), each.rows.begin(), each.rows.end());
    width += each.width;
  }
  auto type = first.output().type();
  const auto make = [&](std::string op, std::vector<ir::NamedArgument> arguments, std::vector<Dim> sizes,
                        std::vector<Dim> strides) {
    auto made = type;
    made.sizes = std::move(sizes);
    made.strides = std::move(strides);
    auto& node = graph.add_node(std::move(op), std::move(arguments), {made}, &first);
    node.set_scope(first.scope());
    return &node.output();
  };
  auto* x = siblings.front().x;
  const Dim inner = x->type().sizes[1], count = x->type().sizes[0];
  auto* weight =
      make("aten::cat", {{"tensors", rows}, {"dim", ir::Attribute(int64_t{0})}}, {width, inner}, {inner, 1});
  auto* turned = make("aten::t", {{"self", weight}}, {inner, width}, {1, inner});
  auto* all = make("aten::mm", {{"self", x}, {"mat2", turned}}, {count, width}, {width, 1});
  Dim start = 0;
  std::vector<Value*> columns;
  for (const auto& each : siblings) {
    columns.push_back(make("aten::slice.Tensor",
                           {{"self", all},
                            {"dim", ir::Attribute(int64_t{1})},
                            {"start", ir::Attribute(int64_t{start})},
                            {"end", ir::Attribute(int64_t{start + each.width})},
                            {"step", ir::Attribute(int64_t{1})}},
                           {count, each.width}, {width, 1}));
    start += each.width;
  }
  for (size_t i = 0; i < siblings.size(); ++i) {
    replace(graph, siblings[i].product->output(), *columns[i], *columns[i]);
    graph.erase(*siblings[i].product);
  }
}

}  // namespace

void join_narrow_siblings(ir::Graph& graph, int64_t width) {
  std::map<const Value*, std::vector<Narrow>> by_input;
  std::vector<const Value*> order;
  for (auto* node : ir::nodes_of(graph)) {
    auto narrow = narrow_of(*node, width);
    if (!narrow || !can_be_columns(node->output(), narrow->width, graph)) continue;
    const auto* x = narrow->x;
    if (!by_input.contains(x)) order.push_back(x);
    by_input[x].push_back(std::move(*narrow));
  }
  for (const auto* x : order)
    if (by_input[x].size() > 1) join(graph, by_input[x]);
}

}  // namespace graft::passes
