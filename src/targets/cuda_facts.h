// What fusion and the passes know of GPUs, with and without CUDA.
#pragma once
#include "codegen/limits.h"
#include "passes/pipeline.h"

namespace graft::cuda {

const codegen::Limits& limits();
const passes::TargetFacts& facts();

}  // namespace graft::cuda
