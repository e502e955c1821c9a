// sin, cos, tan and their inverses.
#include "target/cpu/lanes.h"
#include "target/cpu/vector_math.h"
namespace graft::cpu {
llvm::Value* emit_sin(llvm::IRBuilderBase& b, llvm::Value* x) { return call_libm(b, "sin", x); }
llvm::Value* emit_cos(llvm::IRBuilderBase& b, llvm::Value* x) { return call_libm(b, "cos", x); }
llvm::Value* emit_tan(llvm::IRBuilderBase& b, llvm::Value* x) { return call_libm(b, "tan", x); }
llvm::Value* emit_asin(llvm::IRBuilderBase& b, llvm::Value* x) { return call_libm(b, "asin", x); }
llvm::Value* emit_acos(llvm::IRBuilderBase& b, llvm::Value* x) { return call_libm(b, "acos", x); }
llvm::Value* emit_atan(llvm::IRBuilderBase& b, llvm::Value* x) { return call_libm(b, "atan", x); }
llvm::Value* emit_sinh(llvm::IRBuilderBase& b, llvm::Value* x) { return call_libm(b, "sinh", x); }
llvm::Value* emit_cosh(llvm::IRBuilderBase& b, llvm::Value* x) { return call_libm(b, "cosh", x); }
llvm::Value* emit_erfc(llvm::IRBuilderBase& b, llvm::Value* x) { return call_libm(b, "erfc", x); }
llvm::Value* emit_pow(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y) { return call_libm(b, "pow", x, y); }
}  // namespace graft::cpu
