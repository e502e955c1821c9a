// The table of functions, the calls into the C library, and square roots.
#include "target/cpu/vector_math.h"

#include <llvm/IR/Module.h>

#include <algorithm>
#include <string>
#include <utility>

#include "target/cpu/lanes.h"

namespace graft::cpu {
namespace {

template <size_t n>
struct Name {
  constexpr Name(const char (&text)[n]) { std::copy_n(text, n, characters); }
  char characters[n];
};

/// A function of which the C library is all there is.
template <Name name>
llvm::Value* emit_libm(llvm::IRBuilderBase& builder, llvm::Value* x) {
  return call_libm(builder, name.characters, x);
}
template <Name name>
llvm::Value* emit_libm2(llvm::IRBuilderBase& builder, llvm::Value* x, llvm::Value* y) {
  return call_libm(builder, name.characters, x, y);
}

constexpr std::pair<std::string_view, Emitter> kUnary[] = {
    {"acos", emit_acos},
    {"acosh", emit_libm<"acosh">},
    {"asin", emit_asin},
    {"asinh", emit_libm<"asinh">},
    {"atan", emit_atan},
    {"atanh", emit_libm<"atanh">},
    {"cos", emit_cos},
    {"cosh", emit_cosh},
    {"erf", emit_erf},
    {"erfc", emit_erfc},
    {"exp", emit_exp},
    {"exp2", emit_exp2},
    {"expm1", emit_expm1},
    {"lgamma", emit_libm<"lgamma">},
    {"log", emit_log},
    {"log10", emit_log10},
    {"log1p", emit_log1p},
    {"log2", emit_log2},
    {"rsqrt", emit_rsqrt},
    {"sigmoid", emit_sigmoid},
    {"sin", emit_sin},
    {"sinh", emit_sinh},
    {"sqrt", emit_sqrt},
    {"tan", emit_tan},
    {"tanh", emit_tanh},
};
constexpr std::pair<std::string_view, BinaryEmitter> kBinary[] = {
    {"atan2", emit_libm2<"atan2">},
    {"fmod", emit_libm2<"fmod">},
    {"hypot", emit_libm2<"hypot">},
    {"pow", emit_pow},
};

llvm::FunctionCallee declare(llvm::IRBuilderBase& builder, std::string_view name, llvm::Type* type, size_t arguments) {
  auto& module = *builder.GetInsertBlock()->getModule();
  const std::string symbol = std::string(name) + (type->isFloatTy() ? "f" : "");
  auto callee = module.getOrInsertFunction(
      symbol, llvm::FunctionType::get(type, llvm::SmallVector<llvm::Type*, 2>(arguments, type), false));
  if (auto* function = llvm::dyn_cast<llvm::Function>(callee.getCallee())) {
    function->setDoesNotThrow();
    function->setWillReturn();
    function->setDoesNotAccessMemory();  // errno is nobody's here
  }
  return callee;
}

llvm::Value* call_lanes(llvm::IRBuilderBase& builder, std::string_view name, llvm::ArrayRef<llvm::Value*> arguments) {
  auto* type = arguments[0]->getType();
  const auto callee = declare(builder, name, type->getScalarType(), arguments.size());
  if (!type->isVectorTy()) return builder.CreateCall(callee, arguments);
  llvm::Value* result = llvm::PoisonValue::get(type);
  for (unsigned lane = 0; lane < lanes_of(type); ++lane) {
    llvm::SmallVector<llvm::Value*, 2> scalars;
    for (auto* argument : arguments) scalars.push_back(builder.CreateExtractElement(argument, lane));
    result = builder.CreateInsertElement(result, builder.CreateCall(callee, scalars), lane);
  }
  return result;
}

}  // namespace

Emitter find_unary(std::string_view name) {
  for (const auto& [known, emitter] : kUnary)
    if (known == name) return emitter;
  return nullptr;
}

BinaryEmitter find_binary(std::string_view name) {
  for (const auto& [known, emitter] : kBinary)
    if (known == name) return emitter;
  return nullptr;
}

llvm::Value* call_libm(llvm::IRBuilderBase& builder, std::string_view name, llvm::Value* x) {
  return call_lanes(builder, name, {x});
}

llvm::Value* call_libm(llvm::IRBuilderBase& builder, std::string_view name, llvm::Value* x, llvm::Value* y) {
  return call_lanes(builder, name, {x, y});
}

llvm::Value* emit_sqrt(llvm::IRBuilderBase& builder, llvm::Value* x) {
  Lanes lanes(builder, x->getType());
  return sqrt(lanes.of(x)).value;
}

llvm::Value* emit_rsqrt(llvm::IRBuilderBase& builder, llvm::Value* x) {
  Lanes lanes(builder, x->getType());
  return (1.0 / sqrt(lanes.of(x))).value;
}

}  // namespace graft::cpu
