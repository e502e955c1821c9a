// What fusion and the passes know of CPUs, with and without LLVM.
#pragma once
#include <string>
#include <vector>

#include "codegen/limits.h"
#include "passes/pipeline.h"

namespace graft::cpu {

const codegen::Limits& limits();
const passes::TargetFacts& facts();
const std::vector<std::string>& code_levels();

}  // namespace graft::cpu
