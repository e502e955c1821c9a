// What graft's own callers make of the options that a user gives.
#pragma once
#include "graft/compile.h"

namespace graft {

/// For functions whose code reads nothing that no guard sees, or that are too large to be watched at times:
/// they are replayed only where that is asked for.
CompileOptions unreplayed(CompileOptions options);

}  // namespace graft
