#include "verify/first_wrong_node.h"

#include "ir/clone.h"
#include "runtime/residency_scope.h"
#include "targets/reference/interpreter.h"
#include "verify/generator_states.h"
#include "verify/tolerance.h"

namespace graft::verify {

std::string node_text(const ir::Node& node) {
  return ir::to_string(node) + (node.scope().empty() ? "" : " in " + node.scope());
}

std::string first_wrong_node(const Capture& captured, const BuildExecutable& build) {
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
    const runtime::ResidencyScope weights(captured.input_values);
    const GeneratorStates before({}, captured.input_values);
    const auto got = build(std::move(all))->run(captured.input_values, false);
    before.restore();
    std::string found;
    const auto computed_in = coarsest_dtype(captured.graph);
    ref::interpret(captured.graph, captured.input_values, captured.generators,
                   [&](const ir::Node& node, const std::vector<at::Tensor>& want) {
                     for (size_t i = 0; found.empty() && i < want.size(); ++i) {
                       if (!want[i].defined()) continue;
                       const auto what = difference(got[place.at(&node.output(i))], want[i], computed_in);
                       if (!what.empty())
                         found = "; the first node that differs is " + node_text(node) + ": " + what;
                     }
                   });
    return found;
  } catch (const std::exception& error) {
    return std::string("; the search for the first node that differs failed: ") + error.what();
  }
}

}  // namespace graft::verify
