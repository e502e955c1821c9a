// The instructions behind lanes.h.
#include "targets/cpu/lanes.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include <llvm/TargetParser/Triple.h>

#include <bit>
#include <numeric>
#include <vector>

namespace graft::cpu {
namespace {

Lanes& lanes(const Number& x, const Number& y) { return x.lanes ? *x.lanes : *y.lanes; }

}  // namespace

llvm::Value* by_avx512_registers(llvm::IRBuilderBase& builder, llvm::ArrayRef<llvm::Value*> vectors,
                                 llvm::function_ref<llvm::Value*(llvm::ArrayRef<llvm::Value*>)> body) {
  const auto* scalar = vectors[0]->getType()->getScalarType();
  if (!scalar->isFloatTy() && !scalar->isDoubleTy()) return nullptr;
  const unsigned size = 512 / scalar->getScalarSizeInBits(), lanes = lanes_of(vectors[0]->getType());
  if (lanes % size != 0 || !has_feature(builder, "avx512f")) return nullptr;
  std::vector<llvm::Value*> made;
  for (unsigned first = 0; first < lanes; first += size) {
    std::vector<int> part(size);
    std::iota(part.begin(), part.end(), static_cast<int>(first));
    std::vector<llvm::Value*> registers;
    for (auto* vector : vectors) registers.push_back(builder.CreateShuffleVector(vector, part));
    made.push_back(body(registers));
  }
  while (made.size() > 1) {  // both halves of each pair, in a row
    std::vector<llvm::Value*> wider;
    for (size_t i = 0; i + 1 < made.size(); i += 2) {
      std::vector<int> both(2 * lanes_of(made[i]->getType()));
      std::iota(both.begin(), both.end(), 0);
      wider.push_back(builder.CreateShuffleVector(made[i], made[i + 1], both));
    }
    made = std::move(wider);
  }
  return made[0];
}

unsigned lanes_of(llvm::Type* type) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  return vector ? vector->getNumElements() : 1;
}

llvm::Type* widened(llvm::Type* scalar, llvm::Type* like) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like);
  return vector ? llvm::FixedVectorType::get(scalar, vector->getNumElements()) : scalar;
}

bool has_feature(const llvm::IRBuilderBase& builder, std::string_view feature) {
  const auto features =
      builder.GetInsertBlock()->getParent()->getFnAttribute("target-features").getValueAsString();
  llvm::SmallVector<llvm::StringRef> parts;
  features.split(parts, ',');
  return llvm::is_contained(parts, "+" + std::string(feature));
}

bool on_arm(const llvm::IRBuilderBase& builder) {
  return llvm::Triple(builder.GetInsertBlock()->getModule()->getTargetTriple()).isAArch64();
}

Lanes::Lanes(llvm::IRBuilderBase& builder, llvm::Type* type)
    : b(builder),
      float_type(type),
      int_type(widened(builder.getIntNTy(type->getScalarSizeInBits()), type)),
      arm(on_arm(builder)),
      fused(arm || has_feature(builder, "fma")),
      guard_(builder) {
  b.clearFastMathFlags();
}

llvm::Value* Lanes::value(const Number& x) {
  return x.value ? x.value : llvm::ConstantFP::get(float_type, x.number);
}
int64_t Lanes::bits_of(double x) const {
  return is_float() ? std::bit_cast<int32_t>(static_cast<float>(x)) : std::bit_cast<int64_t>(x);
}
Int Lanes::integer(int64_t x) { return {this, llvm::ConstantInt::getSigned(int_type, x)}; }

#define GRAFT_FLOAT_OPERATOR(op, instruction)                     \
  Float operator op(Number x, Number y) {                         \
    auto& l = lanes(x, y);                                        \
    return {&l, l.b.Create##instruction(l.value(x), l.value(y))}; \
  }
GRAFT_FLOAT_OPERATOR(+, FAdd)
GRAFT_FLOAT_OPERATOR(-, FSub)
GRAFT_FLOAT_OPERATOR(*, FMul)
GRAFT_FLOAT_OPERATOR(/, FDiv)
#undef GRAFT_FLOAT_OPERATOR
Float operator-(Float x) { return {x.at, x.at->b.CreateFNeg(x.value)}; }

#define GRAFT_COMPARISON(op, predicate)                                    \
  Mask operator op(Float x, Number y) {                                    \
    return {x.at, x.at->b.CreateFCmp##predicate(x.value, x.at->value(y))}; \
  }
GRAFT_COMPARISON(<, OLT)
GRAFT_COMPARISON(>, OGT)
GRAFT_COMPARISON(<=, OLE)
GRAFT_COMPARISON(>=, OGE)
#undef GRAFT_COMPARISON
Mask operator==(Float x, double y) { return x == x.at->of(x.at->value(y)); }
Mask operator==(Float x, Float y) { return {x.at, x.at->b.CreateFCmpOEQ(x.value, y.value)}; }
Mask is_nan(Float x) { return {x.at, x.at->b.CreateFCmpUNO(x.value, x.value)}; }

Float fma(Number x, Number y, Number z) {
  auto& l = x.lanes ? *x.lanes : lanes(y, z);
  const auto id = l.fused ? llvm::Intrinsic::fma : llvm::Intrinsic::fmuladd;
  return {&l, l.b.CreateIntrinsic(id, {l.float_type}, {l.value(x), l.value(y), l.value(z)})};
}

Float abs(Float x) { return {x.at, x.at->b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x.value)}; }
Float sqrt(Float x) { return {x.at, x.at->b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x.value)}; }
Float round(Float x) { return {x.at, x.at->b.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x.value)}; }

Float copysign(Number size, Float sign) {
  return {sign.at, sign.at->b.CreateCopySign(sign.at->value(size), sign.value)};
}

// One instruction each: fmin and fmax of aarch64 give NaN for NaN; minps and maxps of x86 give the second
// operand, which is what the backend makes of these comparisons.
Float at_most(Float x, double limit) {
  auto& l = *x.at;
  if (l.arm) return {&l, l.b.CreateBinaryIntrinsic(llvm::Intrinsic::minimum, x.value, l.value(limit))};
  return select(l.of(l.value(limit)) < x, limit, x);
}
Float at_least(Float x, double limit) {
  auto& l = *x.at;
  if (l.arm) return {&l, l.b.CreateBinaryIntrinsic(llvm::Intrinsic::maximum, x.value, l.value(limit))};
  return select(l.of(l.value(limit)) > x, limit, x);
}

Float polynomial(Float x, llvm::ArrayRef<double> c) {
  auto pair = [&](size_t k) {
    return k + 1 < c.size() ? fma(x, c[k + 1], c[k]) : x.at->of(x.at->value(c[k]));
  };
  const Float square = x * x;
  size_t k = (c.size() - 1) / 2 * 2;
  Float result = pair(k);
  while (k > 0) result = fma(result, square, pair(k -= 2));
  return result;
}

Float polynomial(Float x, llvm::ArrayRef<double> of_float, llvm::ArrayRef<double> of_double) {
  return polynomial(x, x.at->pick(of_float, of_double));
}

Int bits(Float x) { return {x.at, x.at->b.CreateBitCast(x.value, x.at->int_type)}; }
Float from_bits(Int x) { return {x.at, x.at->b.CreateBitCast(x.value, x.at->float_type)}; }
Float to_float(Int x) { return {x.at, x.at->b.CreateSIToFP(x.value, x.at->float_type)}; }

Int operator+(Int x, Int y) { return {x.at, x.at->b.CreateAdd(x.value, y.value)}; }
Int operator-(Int x, Int y) { return {x.at, x.at->b.CreateSub(x.value, y.value)}; }
Int operator&(Int x, Int y) { return {x.at, x.at->b.CreateAnd(x.value, y.value)}; }
Int operator|(Int x, Int y) { return {x.at, x.at->b.CreateOr(x.value, y.value)}; }
Int operator^(Int x, Int y) { return {x.at, x.at->b.CreateXor(x.value, y.value)}; }
Int operator+(Int x, int64_t y) { return x + x.at->integer(y); }
Int operator-(Int x, int64_t y) { return x - x.at->integer(y); }
Int operator&(Int x, int64_t y) { return x & x.at->integer(y); }
Int operator<<(Int x, int y) { return {x.at, x.at->b.CreateShl(x.value, x.at->integer(y).value)}; }
Int operator>>(Int x, int y) { return {x.at, x.at->b.CreateAShr(x.value, x.at->integer(y).value)}; }
Int high_bits(Int x, int shift) { return {x.at, x.at->b.CreateLShr(x.value, x.at->integer(shift).value)}; }
Mask operator==(Int x, int64_t y) { return {x.at, x.at->b.CreateICmpEQ(x.value, x.at->integer(y).value)}; }
Mask operator!=(Int x, int64_t y) { return {x.at, x.at->b.CreateICmpNE(x.value, x.at->integer(y).value)}; }

Mask operator&(Mask x, Mask y) { return {x.at, x.at->b.CreateAnd(x.value, y.value)}; }
Mask operator|(Mask x, Mask y) { return {x.at, x.at->b.CreateOr(x.value, y.value)}; }
Mask operator!(Mask x) { return {x.at, x.at->b.CreateNot(x.value)}; }
Float select(Mask mask, Number yes, Number no) {
  auto& l = *mask.at;
  return {&l, l.b.CreateSelect(mask.value, l.value(yes), l.value(no))};
}
Int select(Mask mask, Int yes, Int no) {
  return {mask.at, mask.at->b.CreateSelect(mask.value, yes.value, no.value)};
}

}  // namespace graft::cpu
