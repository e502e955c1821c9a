#include "verify/first_wrong_node.h"

#include "compiler/build.h"
#include "verify/tolerance.h"
#include "ir/clone.h"
#include "runtime/residency_scope.h"
#include "targets/reference/interpreter.h"

namespace graft {

std::string at_node(const ir::Node& node) {
  return ir::to_string(node) + (node.scope().empty() ? "" : " in " + node.scope());
}

std::string first_difference(const Capture& captured, const CompileOptions& options) {
  if (!captured.generators.empty()) return "";  // its random numbers are spent
  ir::ValueMap twins;
  auto all = ir::clone(captured.graph, &twins);
  std::unordered_map<const ir::Value*, size_t> place;
  size_t results = all.results().size();
  for (const auto& node : captured.graph.nodes())
    for (const auto& output : node->outputs()) {
      all.add_result(twins.at(output.get()));
      place[output.get()] = results++;
    }
  try {
    const runtime::Present weights(captured.input_values);
    const RandomState before({}, captured.input_values);
    const auto got =
        build(std::move(all), captured.generators, options, {})->run(captured.input_values, false);
    before.restore();
    std::string found;
    const auto computed_in = coarsest_of(captured.graph);
    ref::interpret(captured.graph, captured.input_values, captured.generators,
                   [&](const ir::Node& node, const std::vector<at::Tensor>& want) {
                     for (size_t i = 0; found.empty() && i < want.size(); ++i) {
                       if (!want[i].defined()) continue;
                       const auto what = difference(got[place.at(&node.output(i))], want[i], computed_in);
                       if (!what.empty())
                         found = "; the first node that differs: " + at_node(node) + ", it " + what;
                     }
                   });
    return found;
  } catch (const std::exception& error) {
    return std::string("; looking for the first node failed: ") + error.what();
  }
}

}  // namespace graft
