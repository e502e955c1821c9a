// The target for the CPU that this process runs on: LLVM's machine code on torch's threads, or the stub that
// stands in for it in a build without LLVM.
#pragma once
#include "targets/target.h"

namespace graft::cpu {

const Target& target();

}  // namespace graft::cpu
