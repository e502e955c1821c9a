// Calls that are compared with the eager function: the first two of every program, and those sampled later.
#pragma once
#include "compiler/entry.h"

namespace graft::detail {

/// Captures the function; `frame` gets the shape of its result. GraphBreak also for arguments that refuse it.
Capture capture_call(const Flat& call, const Original& original, const ModuleTree& modules,
                     std::shared_ptr<const void>& frame);

/// What the program takes for granted of parameters, buffers and outside tensors, as they are now.
void guard_inputs(const Capture& captured, Entry& entry);

/// Runs the program on what the capture ran on and holds it against what the capture gave.
Made first_call(Entry& entry, const Capture& captured, const Flat& call, const Original& original,
                const CompileOptions& options);

/// Runs the program and the function on the same tensors and the same random numbers.
Made checked_call(Entry& entry, std::vector<at::Tensor> bound, const Flat& call, const Original& original,
                  const CompileOptions& options);

}  // namespace graft::detail
