// The instructions of a kernel on LLVM values: scalars or vectors alike.
#pragma once
#include <llvm/IR/IRBuilder.h>

#include <utility>
#include <vector>

#include "codegen/op.h"
#include "ir/type.h"

namespace graft::cpu {

/// Of a value in memory (half types are i16, flags i8) and in registers (half types are float, flags i1).
llvm::Type* memory_type(llvm::LLVMContext& context, ir::DType dtype);
llvm::Type* register_type(llvm::LLVMContext& context, ir::DType dtype);
llvm::Value* to_register(llvm::IRBuilderBase& b, ir::DType memory, llvm::Value* raw);
llvm::Value* to_memory(llvm::IRBuilderBase& b, ir::DType held, ir::DType memory, llvm::Value* x);
/// Of a float that is one: nothing is rounded.
llvm::Value* bf16_bits(llvm::IRBuilderBase& b, llvm::Value* x);

/// An instruction with no memory and no reduction; `from` are the dtypes of its arguments.
llvm::Value* compute(llvm::IRBuilderBase& b, codegen::Op op, ir::DType dtype,
                     const std::vector<ir::DType>& from, const std::vector<llvm::Value*>& args);

/// A reduction's start, its step, and its step over the lanes of one vector.
llvm::Value* reduction_identity(llvm::IRBuilderBase& b, codegen::Op op, ir::DType dtype);
llvm::Value* combine(llvm::IRBuilderBase& b, codegen::Op op, ir::DType dtype, llvm::Value* a, llvm::Value* x);
llvm::Value* reduce_lanes(llvm::IRBuilderBase& b, codegen::Op op, ir::DType dtype, llvm::Value* x);

/// argmax and argmin: a value with its place, -1 for none yet. NaN counts as the best, of equals the first
/// place wins.
using Placed = std::pair<llvm::Value*, llvm::Value*>;
Placed better(llvm::IRBuilderBase& b, codegen::Op op, ir::DType dtype, llvm::Value* a, llvm::Value* a_place,
              llvm::Value* x, llvm::Value* x_place);
Placed best_lane(llvm::IRBuilderBase& b, codegen::Op op, ir::DType dtype, llvm::Value* x,
                 llvm::Value* places);

}  // namespace graft::cpu
