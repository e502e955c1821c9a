// Runs something with a stack of its own that is larger than a thread's usual one: templates are parsed,
// rendered and freed by recursion, and how deep that goes is the template's choice, within its limits.
#pragma once
#include <functional>

namespace graft::io {

/// Waits for `work`; what it throws is thrown here.
void run_on_large_stack(const std::function<void()>& work);

}  // namespace graft::io
