// Loops on torch's own threads.
#pragma once
#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace graft::cpu {

/// at::parallel_for over 0 to `end`, which is a plain loop unless compiled with -fopenmp. `body` must not
/// throw.
void parallel_for(int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body);

}  // namespace graft::cpu
