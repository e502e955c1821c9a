// All kernels of a schedule, compiled for this machine: each different one once, on all cores, from the disk
// cache where it is there.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "codegen/kernel.h"
#include "targets/cpu/emit.h"

namespace graft::cpu {

struct MachineKernel {
  KernelFunction function;
  Plan plan;
  std::shared_ptr<Library> library;  ///< keeps the code
};

struct MachineKernels {
  std::vector<MachineKernel> kernels;  ///< one for each given
  int64_t unique = 0, cache_hits = 0;
};

struct TunedKernel {
  const codegen::Kernel* kernel;
  Tuning tuning = {};
};
MachineKernels compile_kernels(const std::vector<TunedKernel>& kernels, bool use_cache);

/// All that a kernel's machine code depends on in addition to the kernel: the generator's source, LLVM, the
/// CPU.
const std::string& generator_fingerprint();

/// Text of one kernel: its LLVM code before and after the passes, and its assembly.
std::string llvm_of(const codegen::Kernel& kernel);

}  // namespace graft::cpu
