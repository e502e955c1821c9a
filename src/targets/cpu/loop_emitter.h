// Loops and branches around a kernel's values, each a scope deeper.
#pragma once
#include <functional>

#include "targets/cpu/value_emitter.h"

namespace graft::cpu {

class LoopEmitter : protected ValueEmitter {
 protected:
  using ValueEmitter::ValueEmitter;

  /// for (i = begin; i < end; i += step) body(i), one scope deeper.
  void loop(Value* begin, Value* end, Value* step, const std::function<void(Value*)>& body) {
    const size_t outer = scopes_.size() - 1;
    stand_at(outer);
    auto* counter = local(i64_);
    b_.CreateStore(begin, counter);
    auto* head = BasicBlock::Create(context_, "head", function_);
    auto* inside = BasicBlock::Create(context_, "body", function_);
    auto* exit = BasicBlock::Create(context_, "exit", function_);
    scopes_[outer].terminator = b_.CreateBr(head);
    b_.SetInsertPoint(head);
    auto* at = b_.CreateLoad(i64_, counter);
    b_.CreateCondBr(b_.CreateICmpSLT(at, end), inside, exit);
    scopes_.push_back({inside, nullptr, {}});
    b_.SetInsertPoint(inside);
    body(at);
    stand_at(scopes_.size() - 1);
    b_.CreateStore(b_.CreateAdd(at, step), counter);
    b_.CreateBr(head);
    scopes_.pop_back();
    scopes_[outer].block = exit;
    scopes_[outer].terminator = nullptr;
    b_.SetInsertPoint(exit);
  }

  /// if (flag) body(), one scope deeper.
  void when(Value* flag, const std::function<void()>& body) {
    const size_t outer = scopes_.size() - 1;
    auto* inside = BasicBlock::Create(context_, "then", function_);
    auto* exit = BasicBlock::Create(context_, "else", function_);
    scopes_[outer].terminator = b_.CreateCondBr(flag, inside, exit);
    scopes_.push_back({inside, nullptr, {}});
    b_.SetInsertPoint(inside);
    body();
    stand_at(scopes_.size() - 1);
    b_.CreateBr(exit);
    scopes_.pop_back();
    scopes_[outer].block = exit;
    scopes_[outer].terminator = nullptr;
    b_.SetInsertPoint(exit);
  }

  void define(size_t dim, Value* value) {
    variables_[dim] = value;
    depths_[dim] = static_cast<int>(scopes_.size()) - 1;
  }
};

}  // namespace graft::cpu
