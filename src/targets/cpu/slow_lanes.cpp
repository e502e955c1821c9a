#include "targets/cpu/slow_lanes.h"

#include <llvm/IR/MDBuilder.h>

namespace graft::cpu {

Float with_slow_lanes(Float usual, Mask slow, llvm::function_ref<llvm::Value*()> exact) {
  auto& lanes = *usual.at;
  auto& b = lanes.b;
  auto* any = slow.value->getType()->isVectorTy() ? b.CreateOrReduce(slow.value) : slow.value;

  auto* before = b.GetInsertBlock();
  auto* function = before->getParent();
  llvm::BasicBlock* after = nullptr;
  if (b.GetInsertPoint() == before->end()) {
    after = llvm::BasicBlock::Create(b.getContext(), "usual", function);
  } else {
    after = before->splitBasicBlock(b.GetInsertPoint(), "usual");
    before->getTerminator()->eraseFromParent();
  }
  auto* way_out = llvm::BasicBlock::Create(b.getContext(), "slow", function);
  b.SetInsertPoint(before);
  b.CreateCondBr(any, way_out, after, llvm::MDBuilder(b.getContext()).createUnlikelyBranchWeights());

  b.SetInsertPoint(way_out);
  const Float mixed = select(slow, lanes.of(exact()), usual);
  auto* end = b.GetInsertBlock();
  b.CreateBr(after);

  b.SetInsertPoint(after, after->begin());
  auto* result = b.CreatePHI(usual.value->getType(), 2);
  result->addIncoming(usual.value, before);
  result->addIncoming(mixed.value, end);
  return lanes.of(result);
}

}  // namespace graft::cpu
