// A kernel's machine code, run once on made-up data when it is made, and held against the kernel's own text.
//
// Calls that are compared with eager code see the caller's data, which may all be of one sign. Here data has
// what kernels get wrong: signs, zeros, infinities, NaN, denormals, large numbers. A few tasks run, the first
// and the last among them, and of these the first and the last vectors and what is left over at the end are
// compared with an evaluation of the same points (codegen/evaluate.h), whose intervals hold every result that
// is allowed. What is outside is wrong, whatever rounding does.
#pragma once
#include <string>

#include "codegen/kernel.h"
#include "targets/cpu/emit.h"
#include "targets/cpu/plan.h"

namespace graft::cpu {

struct Trial {
  int64_t compared = 0;  ///< results
  std::string left_out;  ///< why nothing was compared; empty where something was
  std::string fault;     ///< what is wrong; empty where nothing is
};

/// The function is what was compiled for the kernel with this plan. Threads may do so at once.
Trial try_kernel(const codegen::Kernel& kernel, const Plan& plan, KernelFunction function);

}  // namespace graft::cpu
