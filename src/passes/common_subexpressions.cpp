#include "passes/common_subexpressions.h"

#include <unordered_map>

#include "ir/op_traits.h"

namespace graft::passes {
namespace {

/// The call without the names of its results: "aten::exp(self=%0)", with their types, which say strides.
std::string key_of(const ir::Node& node) {
  auto text = ir::to_string(node);
  const auto start = text.find(" = ");
  auto call = text.substr(start);
  if (const auto scope = call.rfind("  # "); scope != std::string::npos) call.resize(scope);
  for (const auto& output : node.outputs()) call += ir::to_string(output->type());
  return call;
}

}  // namespace

void merge_common_subexpressions(ir::Graph& graph) {
  std::unordered_map<std::string, ir::Node*> seen;
  for (auto* node : ir::nodes_of(graph)) {
    // What stands on both sides of a boundary is computed twice on purpose.
    if (node->op() == "graft::boundary") seen.clear();
    if (ir::must_run(*node) || node->outputs().empty()) continue;
    const auto [first, fresh] = seen.emplace(key_of(*node), node);
    if (fresh) continue;
    for (size_t i = 0; i < node->outputs().size(); ++i)
      graph.replace_uses(node->output(i), first->second->output(i));
    graph.erase(*node);
  }
}

}  // namespace graft::passes
