// Results of calls that wait.
#pragma once
#include <unordered_set>
#include <vector>

#include "codegen/fusion.h"

namespace graft::plan {

/// What calls make that is moved into the arena. In the forward part of a training step that is what its
/// backward part needs: memory of its own would wait beside an arena that is not full yet. In the backward
/// part it is what lies beside an arena that is no longer full when the most does so, gradients that wait to
/// be clipped for example, as far as the whole becomes smaller by it.
/// `leaves` lie elsewhere: results of the whole, in memory that a caller sees.
std::vector<const ir::Value*> results_that_wait(const codegen::Schedule& schedule,
                                                const std::unordered_set<const ir::Value*>& leaves);

}  // namespace graft::plan
