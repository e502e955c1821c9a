// The CPU target from outside: kernels of a schedule, ready to be launched on torch's threads.
#pragma once
#include "codegen/fusion.h"
#include "runtime/choices.h"
#include "runtime/scheduled.h"

namespace graft::cpu {

/// False where graft was built without LLVM.
bool available();

/// Error where there is no LLVM.
CompiledKernels compile(const codegen::Schedule& schedule, const runtime::Measuring& how);

/// For `--emit llvm`.
std::string llvm_of(const codegen::Schedule& schedule);

}  // namespace graft::cpu
