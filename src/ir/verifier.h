// Checks that a graph is well-formed. Run after every pass.
#pragma once
#include "ir/graph.h"

namespace graft::ir {

/// std::logic_error naming the first node that is wrong: a value used before it is defined or of another
/// graph, two values with one id, lists of users that do not match the arguments, a type whose strides do not
/// fit its sizes.
void verify(const Graph& graph);

}  // namespace graft::ir
