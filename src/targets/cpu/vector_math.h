// Elementary functions as LLVM instructions, on a float or double or a fixed vector of them, of any width.
//
// They are graft's own: vector code without calls or tables, right to 2 ulp (the bound of each is in
// tests/unit/test_vector_math.cpp) over all numbers, with infinities, NaN, -0 and denormals as the C library
// has them. For the few that say so each lane calls the C library.
//
// The builder's function should have been through set_target() (jit.h). Where it has no fma instruction (x86
// before 2013), or says nothing, fmuladd takes its place for float: the bounds are a little wider (2 ulp
// still). erfc, sin, cos, tan and fmod, and everything of double, call the C library there.
//
// sin, cos, tan and fmod branch to the C library when a lane's argument (fmod: the quotient) is huge: after
// emit_sin() and its like the builder may stand in another block than before, so take
// builder.GetInsertBlock() afresh for a phi. The builder must stand at the end of a block without terminator,
// or before an instruction that is no phi.
#pragma once
#include <string_view>

namespace llvm {
class IRBuilderBase;
class Type;
class Value;
}  // namespace llvm

namespace graft::cpu {

using Emitter = llvm::Value* (*)(llvm::IRBuilderBase&, llvm::Value*);
using BinaryEmitter = llvm::Value* (*)(llvm::IRBuilderBase&, llvm::Value*, llvm::Value*);

/// The emitter of "exp", "tanh"..., named as in ATen; null for a name that is not here.
Emitter find_unary(std::string_view name);
/// "pow", "atan2", "hypot", "fmod".
BinaryEmitter find_binary(std::string_view name);

llvm::Value* emit_exp(llvm::IRBuilderBase& builder, llvm::Value* x);
/// exp of what is never positive (0, less, or NaN): a softmax's.
llvm::Value* emit_exp_down(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_exp2(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_expm1(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_log(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_log2(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_log10(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_log1p(llvm::IRBuilderBase& builder, llvm::Value* x);

llvm::Value* emit_tanh(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_sigmoid(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_erf(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_erfc(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_sinh(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_cosh(llvm::IRBuilderBase& builder, llvm::Value* x);

llvm::Value* emit_sqrt(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_rsqrt(llvm::IRBuilderBase& builder, llvm::Value* x);  // 1 / sqrt(x), both rounded

llvm::Value* emit_sin(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_cos(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_tan(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_asin(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_acos(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* emit_atan(llvm::IRBuilderBase& builder, llvm::Value* x);

llvm::Value* emit_pow(llvm::IRBuilderBase& builder, llvm::Value* x, llvm::Value* y);
llvm::Value* emit_atan2(llvm::IRBuilderBase& builder, llvm::Value* y, llvm::Value* x);
llvm::Value* emit_hypot(llvm::IRBuilderBase& builder, llvm::Value* x, llvm::Value* y);
/// Exact.
llvm::Value* emit_fmod(llvm::IRBuilderBase& builder, llvm::Value* x, llvm::Value* y);

/// bfloat16 and half as i16, which is how they lie in memory. Rounding is to nearest, ties to even; NaN stays
/// NaN.
llvm::Value* bf16_to_f32(llvm::IRBuilderBase& builder, llvm::Value* bits);
llvm::Value* f32_to_bf16(llvm::IRBuilderBase& builder, llvm::Value* x);
llvm::Value* f16_to_f32(llvm::IRBuilderBase& builder, llvm::Value* bits);
llvm::Value* f32_to_f16(llvm::IRBuilderBase& builder, llvm::Value* x);

/// Truncates to `integer`, a scalar type of 8 to 64 bits. What does not fit is some number, never poison, and
/// as ATen has it, which is as the machine has it. On x86 what does not fit 32 or 64 bits is the smallest
/// number, NaN, too; elsewhere they saturate, and NaN is 0. 8 and 16 bits are the low ones of 32, or of 64
/// for uint8.
llvm::Value* float_to_int(llvm::IRBuilderBase& builder, llvm::Value* x, llvm::Type* integer, bool is_signed);

/// Calls a function of the C library for every lane: "lgamma" becomes lgammaf or lgamma.
llvm::Value* call_libm(llvm::IRBuilderBase& builder, std::string_view name, llvm::Value* x);
llvm::Value* call_libm(llvm::IRBuilderBase& builder, std::string_view name, llvm::Value* x, llvm::Value* y);

}  // namespace graft::cpu
