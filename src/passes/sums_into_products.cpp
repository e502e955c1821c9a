#include "passes/sums_into_products.h"

#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "ir/product.h"

namespace graft::passes {
namespace {

using ir::Node;
using ir::Value;

/// The product behind a value, if nothing but reshapes that nobody else uses lies between.
Node* product_behind(const Value& value, const ir::Graph& graph) {
  const auto* at = &value;
  while (at->producer() && at->users().size() == 1 && !graph.is_result(*at) && at->type().is_contiguous()) {
    auto& node = *at->producer();
    if (const auto product = ir::as_product(node)) return product->batched ? nullptr : &node;
    if (!ir::is_reshape(node)) return nullptr;
    at = ir::value_of(node, "self");
  }
  return nullptr;
}

int64_t inner(const Node& product) { return ir::as_product(product)->a->type().sizes[1]; }

/// A plain product that may be added onto the other.
bool can_follow(const Node& product, const Node& other) {
  return !ir::as_product(product)->added && product.output().type() == other.output().type() &&
         ir::is_floating(product.output().type().dtype);
}

}  // namespace

void fold_sums_into_products(ir::Graph& graph) {
  for (auto* node : ir::nodes_of(graph)) {
    if (node->op() != "aten::add.Tensor" || ir::number_of(*node, "alpha").value_or(1) != 1) continue;
    auto *a = ir::value_of(*node, "self"), *b = ir::value_of(*node, "other");
    if (!a || !b || a == b || a->type() != node->output().type() || b->type() != node->output().type())
      continue;
    auto *first = product_behind(*a, graph), *second = product_behind(*b, graph);
    if (!first || !second || first == second) continue;
    if (!can_follow(*second, *first) || (can_follow(*first, *second) && inner(*first) < inner(*second)))
      std::swap(first, second);
    if (!can_follow(*second, *first)) continue;
    const auto product = *ir::as_product(*second);
    auto& sum =
        graph.add_node("aten::addmm", {{"self", &first->output()}, {"mat1", product.a}, {"mat2", product.b}},
                       {first->output().type()}, node);
    sum.set_scope(node->scope());
    auto* result = &sum.output();
    if (node->output().type() != result->type()) {
      auto& shaped = graph.add_node("aten::view",
                                    {{"self", result}, {"size", ir::Attribute(node->output().type().sizes)}},
                                    {node->output().type()}, node);
      shaped.set_scope(node->scope());
      result = &shaped.output();
    }
    graph.replace_uses(node->output(), *result);
    graph.erase(*node);
  }
}

}  // namespace graft::passes
