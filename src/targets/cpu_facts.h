// What fusion and the passes know of CPUs, with and without LLVM.
#pragma once
#include "codegen/limits.h"
#include "passes/pipeline.h"

namespace graft::cpu {

const codegen::Limits& limits();
const passes::TargetFacts& facts();

}  // namespace graft::cpu
