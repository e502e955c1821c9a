// A copy of a graph, and the way from the original's values to the copy's.
#pragma once
#include <unordered_map>

#include "ir/graph.h"

namespace graft::ir {

using ValueMap = std::unordered_map<const Value*, Value*>;

/// Same inputs, nodes, results and scopes. Ids are the original's order, counted again.
Graph clone(const Graph& graph, ValueMap* map = nullptr);

/// Appends the call to a graph, over what the map has for its values; the map then has its outputs, too.
Node& copy_node(const Node& node, Graph& to, ValueMap& map);

/// The arguments of a node with every value replaced by what the map has for it.
std::vector<NamedArgument> mapped_arguments(const Node& node, const ValueMap& map);

}  // namespace graft::ir
