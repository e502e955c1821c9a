// A copy of a graph, and the way from the original's values to the copy's.
#pragma once
#include <unordered_map>

#include "ir/graph.h"

namespace graft::ir {

using ValueMap = std::unordered_map<const Value*, Value*>;

/// Same inputs, nodes, results and scopes. Ids are the original's order, counted again.
Graph clone(const Graph& graph, ValueMap* map = nullptr);

/// Appends the call to a graph, over what the map has for its values; the map then has its outputs, too. An
/// output that it had before stays what it was.
Node& copy_node(const Node& node, Graph& to, ValueMap& map);
/// The same for a call that differs in its arguments, which are the other graph's, or in its results' types.
Node& copy_node(const Node& node, std::vector<NamedArgument> arguments, std::vector<TensorType> types,
                Graph& to, ValueMap& map);

/// The arguments of a node with every value replaced by what the map has for it.
std::vector<NamedArgument> mapped_arguments(const Node& node, const ValueMap& map);

/// Of a node's results.
std::vector<TensorType> types_of(const Node& node);

}  // namespace graft::ir
