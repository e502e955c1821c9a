// Numbers that code has made into tensors past the dispatcher, as x.index_put_({mask}, 0.5) does: tensors
// without dimensions that are gone when the function returns. To a graph they are what C++ numbers are: part
// of the program.
#pragma once
#include <map>

#include "capture/capture.h"

namespace graft {

/// `scalars`: inputs of the graph with what was in them. They become constants, and are no inputs any more.
void make_constants(Capture& capture, const std::map<size_t, at::Tensor>& scalars);

}  // namespace graft
