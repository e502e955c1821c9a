// What fusion and the passes know of GPUs, with and without CUDA.
#pragma once
#include <string>
#include <vector>

#include "codegen/limits.h"
#include "passes/pipeline.h"

namespace graft::cuda {

const codegen::Limits& limits();
const passes::TargetFacts& facts();
const std::vector<std::string>& code_levels();

}  // namespace graft::cuda
