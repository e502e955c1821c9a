// The table of functions, the calls into the C library, and square roots.
#include "targets/cpu/vector_math.h"

#include <llvm/IR/Module.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "targets/cpu/lanes.h"

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

constexpr std::pair<std::string_view, Emitter> kUnary[] = {
    {"acos", emit_acos},   {"acosh", emit_libm<"acosh">},
    {"asin", emit_asin},   {"asinh", emit_libm<"asinh">},
    {"atan", emit_atan},   {"atanh", emit_libm<"atanh">},
    {"cos", emit_cos},     {"cosh", emit_cosh},
    {"erf", emit_erf},     {"erfc", emit_erfc},
    {"exp", emit_exp},     {"exp2", emit_exp2},
    {"expm1", emit_expm1}, {"lgamma", emit_libm<"lgamma">},
    {"log", emit_log},     {"log10", emit_log10},
    {"log1p", emit_log1p}, {"log2", emit_log2},
    {"rsqrt", emit_rsqrt}, {"sigmoid", emit_sigmoid},
    {"sin", emit_sin},     {"sinh", emit_sinh},
    {"sqrt", emit_sqrt},   {"tan", emit_tan},
    {"tanh", emit_tanh},
};
constexpr std::pair<std::string_view, BinaryEmitter> kBinary[] = {
    {"atan2", emit_atan2},
    {"fmod", emit_fmod},
    {"hypot", emit_hypot},
    {"pow", emit_pow},
};

llvm::Function* declare(llvm::Module& module, const std::string& symbol, llvm::FunctionType* type) {
  auto* function = llvm::cast<llvm::Function>(module.getOrInsertFunction(symbol, type).getCallee());
  function->setDoesNotThrow();
  function->setWillReturn();
  return function;
}

/// `x[i] = f(x[i], y[i])` for i < count, with f of the C library: a function of the module, made once. A call
/// for every lane in place would be most of a kernel's code, and of the time to compile it.
llvm::Function* loop_over(llvm::IRBuilderBase& builder, const std::string& symbol, llvm::Function* f) {
  auto& context = builder.getContext();
  auto& module = *builder.GetInsertBlock()->getModule();
  llvm::IRBuilder<> b(context);
  auto* i64 = b.getInt64Ty();
  auto* number = f->getReturnType();
  auto* type = llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy(), b.getPtrTy(), i64}, false);
  auto* loop = declare(module, "graft.lanes." + symbol, type);
  if (!loop->empty()) return loop;
  loop->setLinkage(llvm::Function::InternalLinkage);
  loop->addFnAttr(llvm::Attribute::NoInline);
  loop->setOnlyAccessesArgMemory();
  for (const char* target : {"target-cpu", "target-features"})
    loop->addFnAttr(builder.GetInsertBlock()->getParent()->getFnAttribute(target));

  auto* entry = llvm::BasicBlock::Create(context, "entry", loop);
  auto* body = llvm::BasicBlock::Create(context, "body", loop);
  auto* done = llvm::BasicBlock::Create(context, "done", loop);
  b.SetInsertPoint(entry);
  b.CreateBr(body);
  b.SetInsertPoint(body);
  auto* i = b.CreatePHI(i64, 2);
  auto* x = b.CreateGEP(number, loop->getArg(0), i);
  llvm::SmallVector<llvm::Value*, 2> arguments{b.CreateLoad(number, x)};
  if (f->arg_size() == 2) arguments.push_back(b.CreateLoad(number, b.CreateGEP(number, loop->getArg(1), i)));
  b.CreateStore(b.CreateCall(f, arguments), x);
  auto* next = b.CreateAdd(i, b.getInt64(1));
  i->addIncoming(b.getInt64(0), entry);
  i->addIncoming(next, body);
  b.CreateCondBr(b.CreateICmpULT(next, loop->getArg(2)), body, done);
  b.SetInsertPoint(done);
  b.CreateRetVoid();
  return loop;
}

llvm::Value* call_lanes(llvm::IRBuilderBase& builder, std::string_view name,
                        llvm::ArrayRef<llvm::Value*> arguments) {
  auto* type = arguments[0]->getType();
  auto* scalar = type->getScalarType();
  const std::string symbol = std::string(name) + (scalar->isFloatTy() ? "f" : "");
  const llvm::SmallVector<llvm::Type*, 2> types(arguments.size(), scalar);
  auto* f =
      declare(*builder.GetInsertBlock()->getModule(), symbol, llvm::FunctionType::get(scalar, types, false));
  f->setDoesNotAccessMemory();  // errno is nobody's here
  if (!type->isVectorTy()) return builder.CreateCall(f, arguments);

  // Through memory of the frame: in the entry block, or a loop would grow the stack.
  auto& entry = builder.GetInsertBlock()->getParent()->getEntryBlock();
  llvm::IRBuilder<> at_entry(&entry, entry.begin());
  llvm::SmallVector<llvm::Value*, 2> places;
  for (auto* argument : arguments) {
    places.push_back(at_entry.CreateAlloca(type));
    builder.CreateStore(argument, places.back());
  }
  builder.CreateCall(loop_over(builder, symbol, f),
                     {places.front(), places.back(), builder.getInt64(lanes_of(type))});
  return builder.CreateLoad(type, places.front());
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

llvm::Value* emit_hypot(llvm::IRBuilderBase& builder, llvm::Value* x, llvm::Value* y) {
  Lanes lanes(builder, x->getType());
  const Float a = abs(lanes.of(x)), b = abs(lanes.of(y));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Mask infinite = (a == infinity) | (b == infinity);  // also beside NaN
  if (lanes.is_float()) {
    // Squares of floats are exact in double, and no sum of two overflows.
    Lanes wide(builder, widened(builder.getDoubleTy(), x->getType()));
    const auto in_double = [&](Float v) { return wide.of(builder.CreateFPExt(v.value, wide.float_type)); };
    const Float p = in_double(a), q = in_double(b);
    const Float root = sqrt(fma(p, p, q * q));
    return select(infinite, infinity, lanes.of(builder.CreateFPTrunc(root.value, lanes.float_type))).value;
  }
  const Mask swap = b > a;
  const Float large = select(swap, b, a), small = select(swap, a, b);
  const Float ratio = small / large;
  const Float size = large * sqrt(fma(ratio, ratio, 1.0));
  // 0 / 0 is no ratio; NaN is in the sum.
  const Mask nothing = large == 0.0;
  return select(infinite, infinity, select(nothing, a + b, size)).value;
}

llvm::Value* emit_rsqrt(llvm::IRBuilderBase& builder, llvm::Value* x) {
  Lanes lanes(builder, x->getType());
  return (1.0 / sqrt(lanes.of(x))).value;
}

}  // namespace graft::cpu
