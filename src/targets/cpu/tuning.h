// Mode max-autotune: each kernel that has enough to do is tried with other vectors and other tasks than the
// usual, over memory of its own, and the fastest is taken. The choice is kept with the kernels on disk.
#pragma once
#include <vector>

#include "codegen/fusion.h"
#include "targets/cpu/kernels.h"

namespace graft::cpu {

/// `kernels` are those of the schedule, in its order.
void tune(const codegen::Schedule& schedule, std::vector<TunedKernel>& kernels, bool use_cache);

}  // namespace graft::cpu
