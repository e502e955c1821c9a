#include "passes/plain_creation.h"

#include "ir/arguments.h"

namespace graft::passes {
namespace {

std::optional<ir::Attribute> filled_with(const ir::Node& node) {
  const auto& op = node.op();
  if (op == "aten::zeros_like" || op == "aten::new_zeros") return int64_t{0};
  if (op == "aten::ones_like" || op == "aten::new_ones") return int64_t{1};
  if (op == "aten::full_like" || op == "aten::new_full") {
    const auto* value = ir::attribute_of(node, "fill_value");
    if (value) return *value;
  }
  return std::nullopt;
}

}  // namespace

void make_creation_plain(ir::Graph& graph) {
  for (auto* node : ir::nodes_of(graph)) {
    const auto number = filled_with(*node);
    if (!number || !node->output().type().is_contiguous()) continue;
    const auto& type = node->output().type();
    auto& made = graph.add_node("aten::full",
                                {{"size", ir::Attribute(type.sizes)},
                                 {"fill_value", *number},
                                 {"dtype", ir::Attribute(type.dtype)},
                                 {"device", ir::Attribute(type.device)}},
                                {type}, node);
    made.set_scope(node->scope());
    graph.replace_uses(node->output(), made.output());
    graph.erase(*node);
  }
}

}  // namespace graft::passes
