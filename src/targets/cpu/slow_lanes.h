// Vector code with a way out: lanes whose arguments a formula does not reach.
#pragma once
#include "targets/cpu/lanes.h"

namespace graft::cpu {

/// `usual`, and where any lane is `slow`, in these lanes what `exact` appends to the builder. The builder may
/// stand in another block afterwards, see vector_math.h.
Float with_slow_lanes(Float usual, Mask slow, llvm::function_ref<llvm::Value*()> exact);

}  // namespace graft::cpu
