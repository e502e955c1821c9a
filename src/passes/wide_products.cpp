#include "passes/wide_products.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "decomp/builder.h"
#include "ir/clone.h"
#include "ir/product.h"

namespace graft::passes {
namespace {

using decomp::Builder;
using ir::DType;
using ir::Node;
using ir::Value;

/// What is done in products but is not one of two matrices. As with those, results depend on the dtype of the
/// arguments in nothing but precision.
bool is_made_of_products(const Node& node) {
  static const std::set<std::string_view> known = {
      "aten::mv",
      "aten::addmv",
      "aten::dot",
      "aten::convolution",
      "aten::convolution_backward",
      "aten::_scaled_dot_product_flash_attention_for_cpu",
      "aten::_scaled_dot_product_flash_attention_for_cpu_backward"};
  return known.contains(node.op());
}

/// Row by row, or in the order of the strides where each element is there once: as ATen lays out a copy.
ir::TensorType without_gaps(const ir::TensorType& type) {
  auto made = ir::contiguous(DType::f32, type.sizes, type.device);
  std::vector<size_t> order(type.sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = 0; i < order.size(); ++i)
    if (type.strides[i] == 0 && type.sizes[i] != 1) return made;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(-type.strides[a], a) < std::pair(-type.strides[b], b);
  });
  ir::Dim step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    made.strides[order[i]] = step;
    step *= std::max<ir::Dim>(type.sizes[order[i]], 1);
  }
  return made;
}

/// In float32, in memory without gaps. The order stays: what some operators give lies as their arguments do.
Value* widened(Builder& builder, Value* x) {
  if (!ir::is_half(x->type().dtype)) return x;
  auto* wide = builder.to(x, DType::f32);
  if (!x->type().is_dense()) wide->set_type(without_gaps(x->type()));
  return wide;
}

/// The node over float32; its outputs rounded to what they were.
void widen(ir::Graph& graph, Node& node) {
  Builder builder(graph, node);
  auto arguments = node.arguments();
  for (auto& [name, argument] : arguments)
    if (auto* value = std::get_if<Value*>(&argument); value && *value) *value = widened(builder, *value);
  auto types = ir::types_of(node);
  for (auto& type : types) type.dtype = ir::wide(type.dtype);
  auto& wide = graph.add_node(node.op(), std::move(arguments), std::move(types), &node);
  wide.set_scope(node.scope());
  for (size_t i = 0; i < node.outputs().size(); ++i)
    graph.replace_uses(node.output(i), *builder.to(&wide.output(i), node.output(i).type().dtype));
  graph.erase(node);
}

ir::TensorType swapped(ir::TensorType type) {
  std::swap(type.sizes[0], type.sizes[1]);
  std::swap(type.strides[0], type.strides[1]);
  return type;
}

/// x [m, k] with the transpose of a weight [n, k], both along their rows: few enough x that the weight's
/// elements are the work.
bool has_few_rows(const ir::Product& product, ir::Dim few) {
  if (product.batched || product.is_scaled()) return false;
  const auto &x = product.a->type(), &turned = product.b->type();
  const bool along_rows = turned.strides[0] == 1 && turned.strides[1] >= turned.sizes[0];
  return x.sizes[0] <= few && x.is_contiguous() && along_rows && turned.numel() > 0;
}

/// Sums of products in one kernel, rounded once. A row of the weight meets all of x before the next one.
void write_out(ir::Graph& graph, Node& node, const ir::Product& product) {
  Builder builder(graph, node);
  auto* x = widened(builder, product.a);
  auto* turned = product.b;
  const auto& columns = turned->type();
  auto type = columns;
  type.sizes = {columns.sizes[1], 1, columns.sizes[0]};
  type.strides = {columns.strides[1], columns.strides[1], 1};
  auto* weight = builder.call("aten::t", {{"self", turned}}, swapped(columns));
  weight = builder.call("aten::unsqueeze", {{"self", weight}, {"dim", ir::Attribute(int64_t{1})}}, type);
  auto* sum = builder.sum(builder.mul(builder.to(weight, DType::f32), x), {2}, /*keep=*/false);
  sum = builder.call("aten::t", {{"self", sum}}, swapped(sum->type()));
  if (product.added) sum = builder.add(sum, builder.to(product.added, DType::f32));
  auto* rounded = builder.to(sum, node.output().type().dtype);
  rounded->set_type(node.output().type());
  graph.replace_uses(node.output(), *rounded);
  graph.erase(node);
}

}  // namespace

void widen_products(ir::Graph& graph, const std::function<bool(DType)>& is_slow,
                    const std::function<int64_t(DType)>& rows_of_a_kernel) {
  for (auto* node : ir::nodes_of(graph)) {
    const auto product = ir::as_product(*node);
    if (!product && !is_made_of_products(*node)) continue;
    const auto& type = node->output().type();
    if (!ir::is_half(type.dtype)) continue;
    if (product && has_few_rows(*product, rows_of_a_kernel(type.dtype)) && type.is_contiguous())
      write_out(graph, *node, *product);
    else if (is_slow(type.dtype))
      widen(graph, *node);
  }
}

}  // namespace graft::passes
