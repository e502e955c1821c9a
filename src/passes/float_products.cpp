#include "passes/float_products.h"

#include <algorithm>
#include <vector>

#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "ir/product.h"

namespace graft::passes {
namespace {

using ir::DType;
using ir::Node;
using ir::Value;

/// Changes nothing but the dtype.
bool is_cast(const Node& node) {
  if (node.op() != "aten::_to_copy") return false;
  const auto &from = ir::value_of(node, "self")->type(), &to = node.output().type();
  return from.strides == to.strides && from.device == to.device;
}

Value* self_of(const Value& value) { return ir::value_of(*value.producer(), "self"); }

/// Sees the same elements in the same memory.
bool is_plain_view(const Node& node) {
  return ir::is_reshape(node) || node.op() == "aten::t" || node.op() == "aten::transpose.int";
}

/// A value in floats as it was before it was made of halves, through views; else the value.
Value* before_its_cast(ir::Graph& graph, Value* wide, Node& before) {
  std::vector<const Node*> views;
  const auto* at = wide;
  while (at->producer() && is_plain_view(*at->producer())) {
    views.push_back(at->producer());
    at = self_of(*at);
  }
  if (!at->producer() || !is_cast(*at->producer())) return wide;
  auto* made = self_of(*at);
  if (!ir::is_half(made->type().dtype)) return wide;
  for (size_t i = views.size(); i-- > 0;) {
    auto arguments = views[i]->arguments();
    for (auto& [name, argument] : arguments)
      if (name == "self") argument = made;
    auto type = views[i]->output().type();
    type.dtype = made->type().dtype;
    auto& view = graph.add_node(views[i]->op(), std::move(arguments), {type}, &before);
    view.set_scope(views[i]->scope());
    made = &view.output();
  }
  return made;
}

/// The only node that uses a value.
Node* only_user(const Value& value, const ir::Graph& graph) {
  return value.users().size() == 1 && !graph.is_result(value) ? value.users().front() : nullptr;
}

/// What follows a product until it is rounded to halves.
struct Rounding {
  Node* cast;              // the last
  Value* added = nullptr;  // halves, as the cast's result lies
};

std::optional<Rounding> rounding_of(const Node& product, const ir::Graph& graph) {
  const Value* at = &product.output();
  Rounding found{};
  while (auto* user = only_user(*at, graph)) {
    if (is_cast(*user) && ir::is_half(user->output().type().dtype)) {
      found.cast = user;
      const bool fits = user->output().type().is_contiguous() &&
                        (!found.added || found.added->type().dtype == user->output().type().dtype);
      return fits ? std::optional(found) : std::nullopt;
    }
    if (user->op() == "aten::add.Tensor" && !found.added && ir::number_of(*user, "alpha").value_or(1) == 1) {
      auto *a = ir::value_of(*user, "self"), *b = ir::value_of(*user, "other");
      auto* other = a == at ? b : a;
      if (!other || other == at || !ir::is_half(other->type().dtype) ||
          other->type().sizes != at->type().sizes || user->output().type().dtype != DType::f32)
        return std::nullopt;
      found.added = other;
    } else if (!ir::is_reshape(*user) || found.added || !user->output().type().is_contiguous()) {
      return std::nullopt;
    }
    at = &user->output();
  }
  return std::nullopt;
}

/// A value as a matrix of these sizes, if its memory can be seen so; else null.
Value* as_matrix(ir::Graph& graph, Value* value, const ir::TensorType& matrix, Node& before) {
  const auto has_sizes = [&](const Value& v) { return v.type().sizes == matrix.sizes; };
  for (auto* at = value;; at = self_of(*at)) {
    if (has_sizes(*at)) return at;
    if (!at->producer() || !ir::is_reshape(*at->producer())) break;
  }
  if (!value->type().is_contiguous()) return nullptr;
  auto type = matrix;
  type.dtype = value->type().dtype;
  auto& view =
      graph.add_node("aten::view", {{"self", value}, {"size", ir::Attribute(type.sizes)}}, {type}, &before);
  view.set_scope(before.scope());
  return &view.output();
}

struct Sides {
  ir::Dim m, n, k;
  ir::Dim least() const { return std::min({m, n, k}); }
};

std::optional<Sides> sides_of(const Node& node, const ir::Product& product) {
  const auto& out = node.output().type();
  if (product.added || product.batched || product.is_scaled() || out.dtype != DType::f32 ||
      !out.is_contiguous())
    return std::nullopt;
  return Sides{out.sizes[0], out.sizes[1], product.a->type().sizes[1]};
}

void rewrite(ir::Graph& graph, Node& node, const ir::Product& product,
             const std::optional<Rounding>& rounding) {
  auto& before = rounding ? *rounding->cast : node;
  auto type = node.output().type();
  Value* added = nullptr;
  if (rounding && rounding->added) {
    added = as_matrix(graph, rounding->added, type, before);
    if (!added) return;
  }
  std::vector<ir::NamedArgument> arguments = {{"a", before_its_cast(graph, product.a, before)},
                                              {"b", before_its_cast(graph, product.b, before)}};
  if (added) arguments.push_back({"added", added});
  if (rounding) type.dtype = rounding->cast->output().type().dtype;
  arguments.push_back({"dtype", ir::Attribute(type.dtype)});
  auto& made = graph.add_node("graft::float_mm", std::move(arguments), {type}, &before);
  made.set_scope(node.scope());
  auto* result = &made.output();
  const auto& wanted = before.output().type();
  if (wanted != type) {
    auto& shaped = graph.add_node("aten::view", {{"self", result}, {"size", ir::Attribute(wanted.sizes)}},
                                  {wanted}, &before);
    shaped.set_scope(node.scope());
    result = &shaped.output();
  }
  graph.replace_uses(before.output(), *result);
  graph.erase(before);
}

}  // namespace

void use_float_products(ir::Graph& graph, int64_t short_side) {
  if (short_side == 0) return;
  auto products = ir::nodes_of(graph);  // which stay: what is erased is a cast behind one, or the one itself
  std::erase_if(products, [](const Node* node) { return !ir::as_product(*node); });
  for (auto* node : products) {
    const auto product = ir::as_product(*node);
    const auto sides = sides_of(*node, *product);
    // A square is nobody's adapter, and the library's products are at their best there.
    constexpr ir::Dim longer_by = 4;
    if (!sides || sides->least() == 0 || sides->least() > short_side) continue;
    const auto longer = [&](ir::Dim side) { return side >= longer_by * sides->least(); };
    if (longer(sides->m) + longer(sides->n) + longer(sides->k) < 2) continue;
    const bool inner_is_short = sides->k == sides->least();
    const auto rounding = inner_is_short ? rounding_of(*node, graph) : std::nullopt;
    if (inner_is_short && !rounding) continue;  // the result is written as floats in any case
    rewrite(graph, *node, *product, rounding);
  }
}

}  // namespace graft::passes
