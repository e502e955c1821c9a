// What a view shows: from a place in its result to the place in its source.
#pragma once
#include <optional>
#include <vector>

#include "codegen/index.h"
#include "ir/graph.h"

namespace graft::codegen {

using Place = std::vector<Index>;  // one for each dimension

/// The value that a view is a view of; null for a node that is no view, or one whose mapping is not known
/// here.
ir::Value* view_source(const ir::Node& node);

/// Where in the source of the view (its producer's view_source) the element at `place` lies.
Place map_view(const ir::Value& view, const Place& place);

/// The elements between the source's first and the view's first in memory, given that the types have the
/// strides the tensors have.
int64_t view_offset(const ir::Value& view);

}  // namespace graft::codegen
