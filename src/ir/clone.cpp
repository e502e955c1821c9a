#include "ir/clone.h"

namespace graft::ir {

std::vector<NamedArgument> mapped_arguments(const Node& node, const ValueMap& map) {
  auto arguments = node.arguments();
  for (auto& argument : arguments) {
    if (auto* value = std::get_if<Value*>(&argument.value)) *value = map.at(*value);
    if (auto* list = std::get_if<ValueList>(&argument.value))
      for (auto& value : *list)
        if (value) value = map.at(value);
  }
  return arguments;
}

std::vector<TensorType> types_of(const Node& node) {
  std::vector<TensorType> types;
  types.reserve(node.outputs().size());
  for (const auto& output : node.outputs()) types.push_back(output->type());
  return types;
}

Node& copy_node(const Node& node, Graph& to, ValueMap& map) {
  return copy_node(node, mapped_arguments(node, map), types_of(node), to, map);
}

Node& copy_node(const Node& node, std::vector<NamedArgument> arguments, std::vector<TensorType> types,
                Graph& to, ValueMap& map) {
  auto& twin = to.add_node(node.op(), std::move(arguments), std::move(types));
  twin.set_scope(node.scope());
  for (size_t i = 0; i < node.outputs().size(); ++i) map.try_emplace(&node.output(i), &twin.output(i));
  return twin;
}

Graph clone(const Graph& graph, ValueMap* out) {
  Graph copy;
  ValueMap map;
  for (const auto& input : graph.inputs())
    map[input.get()] = &copy.add_input(graph.input_name(input->index()), input->type());
  for (const auto& node : graph.nodes()) copy_node(*node, copy, map);
  for (const auto* result : graph.results()) copy.add_result(result ? map.at(result) : nullptr);
  if (out) *out = std::move(map);
  return copy;
}

}  // namespace graft::ir
