#include "decomp/decompose.h"

#include <algorithm>

#include "decomp/table.h"
#include "ir/op_traits.h"

namespace graft::decomp {
namespace {

const Table& table() {
  static const Table made = [] {
    Table t;
    add_reductions(t);
    add_normalisations(t);
    add_losses(t);
    add_movement(t);
    add_pooling(t);
    add_upsampling(t);
    return t;
  }();
  return made;
}

bool used(const ir::Graph& graph, const ir::Value& value) {
  return !value.users().empty() || graph.is_result(value);
}

/// What reads a value may rely on its strides: those of the old one.
ir::Value* with_type(Builder& builder, ir::Value* made, const ir::TensorType& type) {
  if (made->type() == type) return made;
  const bool fresh =
      made->producer() && made->users().empty() && ir::kind_of(made->producer()->op()) != ir::OpKind::view;
  if (!fresh) made = builder.unary("aten::clone", made);
  made->set_type(type);
  return made;
}

/// A gradient that a node was told not to compute: a result that is it is undefined.
void give_nothing(ir::Graph& graph, const ir::Value& value) {
  for (size_t i = 0; i < graph.results().size(); ++i)
    if (graph.results()[i] == &value) graph.set_result(i, nullptr);
}

/// The formulas are those of real numbers: the square in a variance, say, is that of a magnitude.
bool is_complex(const ir::Node& node) {
  const auto complex = [](const ir::Value* value) {
    return value->type().dtype == ir::DType::c64 || value->type().dtype == ir::DType::c128;
  };
  return std::ranges::any_of(node.inputs(), complex) ||
         std::ranges::any_of(node.outputs(), [&](const auto& output) { return complex(output.get()); });
}

bool decompose_once(ir::Graph& graph) {
  bool changed = false;
  for (auto* node : ir::nodes_of(graph)) {
    const auto found = table().find(node->op());
    if (found == table().end() || is_complex(*node)) continue;
    Builder builder(graph, *node);
    const auto made = found->second(builder, *node);
    if (made.empty()) continue;
    changed = true;
    for (size_t i = 0; i < made.size(); ++i) {
      auto& old = node->output(i);
      if (!used(graph, old)) continue;
      if (!made[i]) {
        give_nothing(graph, old);
        continue;
      }
      graph.replace_uses(old, *with_type(builder, made[i], old.type()));
    }
    graph.erase(*node);
  }
  return changed;
}

}  // namespace

std::vector<std::string> decomposed_operators() {
  std::vector<std::string> names;
  for (const auto& [name, how] : table()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

void decompose(ir::Graph& graph) {
  // A decomposition may give operators that have one themselves.
  while (decompose_once(graph)) {
  }
}

}  // namespace graft::decomp
