// sin, cos and tan, for float. The polynomials are scripts/minimax.py's.
//
// x = n pi/2 + r with pi/2 in three floats: the first product leaves nothing behind, the second and third
// less than r's own rounding, up to kFar. Beyond it, lanes take the C library's value.
#include <llvm/IR/MDBuilder.h>

#include <numbers>

#include "targets/cpu/exp_parts.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {
namespace {

constexpr double kFar = 0x1p17;
constexpr double kHalfPi1 = 0x1.921fb4p+0;  // each rounded down, so that the rests are positive
constexpr double kHalfPi2 = 0x1.4442dp-24;
constexpr double kHalfPi3 = 0x1.846988p-48;

struct Angle {
  Int quadrant;  // n, in its low bits
  Float r;       // |r| <= pi/4 and a little
};
Angle reduce(Float x) {
  const Float t = fma(x, 2 / std::numbers::pi, kRound);
  const Float n = t - kRound;
  return {bits(t), fma(n, -kHalfPi3, fma(n, -kHalfPi2, fma(n, -kHalfPi1, x)))};
}

Float sin_polynomial(Float r, Float square) {
  return fma(r * square, polynomial(square, {-0.166666552, 0.00833218731, -0.000195178916}), r);
}
Float cos_polynomial(Float square) {
  const Float p = polynomial(square, {0.0416666456, -0.00138873095, 2.44323273e-5});
  return fma(square, fma(square, p, -0.5), 1.0);
}

/// `near`, and where any lane of x is beyond kFar, in these lanes what the C library says.
Float with_far_lanes(Float x, Float near, const char* name) {
  auto& b = x.at->b;
  const Mask far = abs(x) > kFar;
  auto* any = far.value->getType()->isVectorTy() ? b.CreateOrReduce(far.value) : far.value;

  auto* before = b.GetInsertBlock();
  auto* function = before->getParent();
  llvm::BasicBlock* after = nullptr;
  if (b.GetInsertPoint() == before->end()) {
    after = llvm::BasicBlock::Create(b.getContext(), "near", function);
  } else {
    after = before->splitBasicBlock(b.GetInsertPoint(), "near");
    before->getTerminator()->eraseFromParent();
  }
  auto* slow = llvm::BasicBlock::Create(b.getContext(), "far", function);
  b.SetInsertPoint(before);
  b.CreateCondBr(any, slow, after, llvm::MDBuilder(b.getContext()).createUnlikelyBranchWeights());

  b.SetInsertPoint(slow);
  const Float exact = select(far, x.at->of(call_libm(b, name, x.value)), near);
  auto* slow_end = b.GetInsertBlock();
  b.CreateBr(after);

  b.SetInsertPoint(after, after->begin());
  auto* result = b.CreatePHI(near.value->getType(), 2);
  result->addIncoming(near.value, before);
  result->addIncoming(exact.value, slow_end);
  return x.at->of(result);
}

/// Without fma the reduction above is not exact, and such machines are not worth another.
bool by_library(const Lanes& lanes) { return !lanes.is_float() || !lanes.fused; }

}  // namespace

llvm::Value* emit_sin(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (by_library(lanes)) return call_libm(builder, "sin", value);
  const Float x = lanes.of(value);
  const auto [quadrant, r] = reduce(abs(x));
  const Float square = r * r;
  const Float size = select((quadrant & 1) == 0, sin_polynomial(r, square), cos_polynomial(square));
  const Int sign = ((quadrant << 30) ^ bits(x)) & INT32_MIN;
  return with_far_lanes(x, from_bits(bits(size) ^ sign), "sin").value;
}

llvm::Value* emit_cos(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (by_library(lanes)) return call_libm(builder, "cos", value);
  const Float x = lanes.of(value);
  const auto [quadrant, r] = reduce(x);
  const Float square = r * r;
  const Float size = select((quadrant & 1) == 0, cos_polynomial(square), sin_polynomial(r, square));
  const Int sign = ((quadrant + 1) << 30) & INT32_MIN;
  return with_far_lanes(x, from_bits(bits(size) ^ sign), "cos").value;
}

llvm::Value* emit_tan(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (by_library(lanes)) return call_libm(builder, "tan", value);
  const Float x = lanes.of(value);
  // In double: near a pole, floats would lose in the argument, in the polynomial and in the division.
  Lanes wide(builder, widened(builder.getDoubleTy(), value->getType()));
  const Float far = wide.of(builder.CreateFPExt(value, wide.float_type));
  const Float t = fma(far, 2 / std::numbers::pi, kRoundDouble);
  const Float n = t - kRoundDouble;
  const Float r = fma(n, -6.123233995736766e-17, fma(n, -std::numbers::pi / 2, far)), square = r * r;
  const Float p = polynomial(square, {0.333333492, 0.133326724, 0.0540594608, 0.0212826077, 0.0108383317,
                                      8.28240154e-5, 0.00438098609});
  const Float tangent = fma(r * square, p, r);
  const Float result = select((bits(t) & 1) == 0, tangent, -1.0 / tangent);
  return with_far_lanes(x, lanes.of(builder.CreateFPTrunc(result.value, lanes.float_type)), "tan").value;
}

}  // namespace graft::cpu
