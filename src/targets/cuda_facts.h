// What fusion and the passes know of GPUs, with and without CUDA.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "codegen/limits.h"
#include "ir/op_traits.h"
#include "passes/pipeline.h"

namespace graft::cuda {

const codegen::Limits& limits();
const passes::TargetFacts& facts();
const std::vector<std::string>& code_levels();
/// The one that computes such calls.
std::string_view library_for(ir::OpKind kind);

}  // namespace graft::cuda
