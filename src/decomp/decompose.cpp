#include "decomp/decompose.h"

#include "decomp/table.h"

namespace graft::decomp {
namespace {

const Table& table() {
  static const Table made = [] {
    Table t;
    add_reductions(t);
    add_normalisations(t);
    add_losses(t);
    return t;
  }();
  return made;
}

bool used(const ir::Graph& graph, const ir::Value& value) { return !value.users().empty() || graph.is_result(value); }

}  // namespace

void decompose(ir::Graph& graph) {
  std::vector<ir::Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  for (auto* node : nodes) {
    const auto found = table().find(node->op());
    if (found == table().end()) continue;
    Builder builder(graph, *node);
    const auto made = found->second(builder, *node);
    if (made.empty()) continue;
    for (size_t i = 0; i < made.size(); ++i) {
      auto& old = node->output(i);
      if (!used(graph, old)) continue;
      // What reads it may rely on its strides.
      if (made[i]->producer() && made[i]->users().empty()) made[i]->set_type(old.type());
      graph.replace_uses(old, *made[i]);
    }
    graph.erase(*node);
  }
}

}  // namespace graft::decomp
