// A program beside the eager call that it is compared with: verify/ judges, here is what follows from it.
#pragma once
#include "compiler/guarded_program.h"
#include "verify/watched_call.h"

namespace graft {

/// Runs the program, as later calls do, on copies of what the function was given, and compares all that a
/// caller can see. Gives the call's result. Mismatch, and then `eager` is undone; or the program is
/// distrusted, as the options say.
detail::FlatResult checked_call(GuardedProgram& guarded, const verify::EagerCall& eager,
                                const detail::FlatArguments& call, const CompileOptions& options);

}  // namespace graft
