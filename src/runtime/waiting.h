// Results of calls that wait.
#pragma once
#include <vector>

#include "codegen/fusion.h"

namespace graft::runtime {

/// What calls make in the forward part of a training step for its backward part. Memory of their own would
/// wait beside an arena that is not full yet: there is room for it there.
std::vector<const ir::Value*> results_that_wait(const codegen::Schedule& schedule);

}  // namespace graft::runtime
