#include "passes/dead_code.h"

#include <algorithm>
#include <unordered_set>

#include "ir/op_traits.h"

namespace graft::passes {

void eliminate_dead_code(ir::Graph& graph) {
  const std::unordered_set<const ir::Value*> results(graph.results().begin(), graph.results().end());
  const auto nodes = ir::nodes_of(graph);
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    const auto unused = [&](const auto& output) {
      return output->users().empty() && !results.contains(output.get());
    };
    if (!ir::must_run(**it) && std::all_of((*it)->outputs().begin(), (*it)->outputs().end(), unused))
      graph.erase(**it);
  }
}

}  // namespace graft::passes
