// A loop over arrays made of an emitter, compiled and ready to run: what the tests of generated code need.
#pragma once
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "targets/cpu/jit.h"

namespace graft::cpu {

/// Takes vectors of `width` elements from each input, gives a vector.
using Body = std::function<llvm::Value*(llvm::IRBuilderBase&, llvm::ArrayRef<llvm::Value*>)>;
using TypeOf = llvm::Type* (*)(llvm::LLVMContext&);

inline llvm::Type* float_type(llvm::LLVMContext& context) { return llvm::Type::getFloatTy(context); }
inline llvm::Type* double_type(llvm::LLVMContext& context) { return llvm::Type::getDoubleTy(context); }
inline llvm::Type* half_bits_type(llvm::LLVMContext& context) { return llvm::Type::getInt16Ty(context); }

class GeneratedLoop {
 public:
  /// With `anonymous` the body is emitted before the module says what machine it is for, as if for one that
  /// has nothing special.
  GeneratedLoop(const Body& body, unsigned width, TypeOf input = float_type, bool anonymous = false)
      : width_(width) {
    llvm::LLVMContext context;
    llvm::Module module("test", context);
    llvm::IRBuilder<> b(context);
    auto* i64 = b.getInt64Ty();
    auto* type =
        llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy(), b.getPtrTy(), b.getPtrTy(), i64}, false);
    auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "loop", module);
    if (!anonymous) {
      set_target(module, host());
      set_target(*function, host());
    }
    auto* entry = llvm::BasicBlock::Create(context, "entry", function);
    auto* loop = llvm::BasicBlock::Create(context, "loop", function);
    auto* done = llvm::BasicBlock::Create(context, "done", function);
    b.SetInsertPoint(entry);
    b.CreateBr(loop);
    b.SetInsertPoint(loop);
    auto* i = b.CreatePHI(i64, 2);
    i->addIncoming(b.getInt64(0), entry);
    llvm::Type* scalar = input(context);
    llvm::Type* vector = width == 1 ? scalar : llvm::FixedVectorType::get(scalar, width);
    llvm::SmallVector<llvm::Value*, 2> values;
    for (unsigned k = 0; k < 2; ++k)
      values.push_back(
          b.CreateAlignedLoad(vector, b.CreateGEP(scalar, function->getArg(k), i), llvm::Align(1)));
    auto* y = body(b, values);
    auto* to = b.CreateGEP(y->getType()->getScalarType(), function->getArg(2), i);
    b.CreateAlignedStore(y, to, llvm::Align(1));
    auto* next = b.CreateAdd(i, b.getInt64(width));
    i->addIncoming(next, b.GetInsertBlock());
    b.CreateCondBr(b.CreateICmpULT(next, function->getArg(3)), loop, done);
    b.SetInsertPoint(done);
    b.CreateRetVoid();
    const std::string object = compile_object(module, host());
    library_ = Library::load({&object, 1});
    run_ = reinterpret_cast<Loop*>(library_->find("loop"));
  }

  /// `y` may be left out where the body does not use it.
  template <class Out, class In>
  std::vector<Out> operator()(std::vector<In> x, std::vector<In> y = {}) const {
    const size_t size = x.size(), padded = (size + width_ - 1) / width_ * width_;
    x.resize(padded);
    y.resize(padded);
    std::vector<Out> result(padded);
    run_(x.data(), y.data(), result.data(), static_cast<int64_t>(padded));
    result.resize(size);
    return result;
  }

 private:
  using Loop = void(const void*, const void*, void*, int64_t);
  unsigned width_;
  std::shared_ptr<Library> library_;
  Loop* run_ = nullptr;
};

/// A body of an emitter of one argument.
template <class F>
Body unary(F emitter) {
  return [emitter](llvm::IRBuilderBase& b, llvm::ArrayRef<llvm::Value*> x) { return emitter(b, x[0]); };
}

}  // namespace graft::cpu
