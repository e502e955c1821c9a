// A kernel as an LLVM function.
#pragma once
#include <string>

#include "codegen/kernel.h"
#include "targets/cpu/plan.h"

namespace graft::cpu {

/// void name(void* const* buffers, int64_t begin, int64_t end, int32_t* error, void* partials, int64_t
/// stage): runs the tasks from begin to end. Buffers are in the kernel's order and may overlap only if they
/// are the same. `error` is set to 1 where an index that is data lies outside its table; such elements are
/// read from its start. Where the plan has parts, all tasks of a stage are run before the next stage, with
/// `partials`, the plan's partial words, between them.
using KernelFunction = void (*)(void* const*, int64_t, int64_t, int32_t*, void*, int64_t);

/// Adds the function to the module, whose target has been set.
void emit(llvm::Module& module, const codegen::Kernel& kernel, const Plan& plan, const std::string& name,
          const Host& host);

}  // namespace graft::cpu
