// Between float and what is narrower: bfloat16, half, integers.
#include <llvm/IR/Intrinsics.h>

#include <cmath>

#include "targets/cpu/lanes.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {
namespace {

llvm::Type* like(llvm::Type* scalar, llvm::Value* value) { return widened(scalar, value->getType()); }

/// Half's exponent bias is 112 less than float's: a half's bits, shifted up, are a float 2^112 times too
/// small.
Float half_to_float_by_hand(Lanes& lanes, Int half) {
  const Int size = half & 0x7fff;
  const Float scaled = from_bits(size << 13) * 0x1p112;  // denormals become normal
  const Int special = bits(scaled) | lanes.integer(0x7f800000);
  const Mask is_special = scaled >= 65536.0;
  return from_bits(select(is_special, special, bits(scaled)) | ((half & 0x8000) << 16));
}

Int float_to_half_by_hand(Lanes& lanes, Float x) {
  const Int sign = bits(x) & int64_t{-0x80000000LL};
  const Float size = abs(x);
  // Adding 2^(e + 13), e the exponent x has but at least half's smallest, drops the 13 bits half does not
  // have, rounding to even.
  const Float huge = from_bits(bits(at_least(at_most(size, 131072.0), 0x1p-14)) & 0x7f800000) * 8192.0;
  const Float rounded = (size + huge) - huge;
  const Int normal = bits(at_most(rounded, 65536.0) * 0x1p-112);
  const Int result = select(is_nan(x), lanes.integer(0x7e00 << 13), normal);
  return high_bits(result, 13) | high_bits(sign, 16);
}

bool has_half(const llvm::IRBuilderBase& builder) { return on_arm(builder) || has_feature(builder, "f16c"); }

}  // namespace

llvm::Value* bf16_to_f32(llvm::IRBuilderBase& builder, llvm::Value* bits) {
  auto* wide = builder.CreateZExt(bits, like(builder.getInt32Ty(), bits));
  return builder.CreateBitCast(builder.CreateShl(wide, 16), like(builder.getFloatTy(), bits));
}

llvm::Value* f32_to_bf16(llvm::IRBuilderBase& builder, llvm::Value* x) {
  auto* wide = builder.CreateBitCast(x, like(builder.getInt32Ty(), x));
  auto splat = [&](uint32_t n) { return llvm::ConstantInt::get(wide->getType(), n); };
  // Half an ulp less one, and one more where the last bit kept is odd: ties go to even. Never wraps but for
  // NaN.
  auto* odd = builder.CreateAnd(builder.CreateLShr(wide, 16), splat(1));
  auto* rounded = builder.CreateLShr(builder.CreateAdd(builder.CreateAdd(wide, splat(0x7fff)), odd), 16);
  auto* result = builder.CreateSelect(builder.CreateFCmpUNO(x, x), splat(0x7fc0), rounded);
  return builder.CreateTrunc(result, like(builder.getInt16Ty(), x));
}

llvm::Value* f16_to_f32(llvm::IRBuilderBase& builder, llvm::Value* bits) {
  auto* type = like(builder.getFloatTy(), bits);
  if (has_half(builder))
    return builder.CreateFPExt(builder.CreateBitCast(bits, like(builder.getHalfTy(), bits)), type);
  Lanes lanes(builder, type);
  return half_to_float_by_hand(lanes, {&lanes, builder.CreateZExt(bits, lanes.int_type)}).value;
}

llvm::Value* f32_to_f16(llvm::IRBuilderBase& builder, llvm::Value* x) {
  if (has_half(builder))
    return builder.CreateBitCast(builder.CreateFPTrunc(x, like(builder.getHalfTy(), x)),
                                 like(builder.getInt16Ty(), x));
  Lanes lanes(builder, x->getType());
  return builder.CreateTrunc(float_to_half_by_hand(lanes, lanes.of(x)).value, like(builder.getInt16Ty(), x));
}

namespace {

/// x86's own conversion, with which ATen's code is compiled there: what does not fit, and NaN, is the
/// smallest number. Narrow types are the low bits of a wider conversion's, as C++ compilers have it.
llvm::Value* float_to_int_x86(llvm::IRBuilderBase& builder, llvm::Value* x, llvm::Type* integer,
                              bool is_signed) {
  const unsigned width = integer->getIntegerBitWidth();
  // ATen goes through int64 to uint8. Floats from 2^31 on are multiples of 2^8: 32 bits leave the same.
  const bool is_double = x->getType()->getScalarType()->isDoubleTy();
  const unsigned through = width > 32 || (!is_signed && is_double) ? 64 : 32;
  Lanes lanes(builder, x->getType());
  const double limit = std::ldexp(1.0, static_cast<int>(through) - 1);
  const Float inside = select(abs(lanes.of(x)) < limit, lanes.of(x), -limit);
  auto* made = builder.CreateFPToSI(inside.value, like(builder.getIntNTy(through), x));
  return through == width ? made : builder.CreateTrunc(made, like(integer, x));
}

}  // namespace

llvm::Value* float_to_int(llvm::IRBuilderBase& builder, llvm::Value* x, llvm::Type* integer, bool is_signed) {
  const unsigned width = integer->getIntegerBitWidth();
  if (!on_arm(builder) && (is_signed || width == 8)) return float_to_int_x86(builder, x, integer, is_signed);
  auto convert = [&](llvm::Type* scalar, llvm::Intrinsic::ID id) {
    return builder.CreateIntrinsic(id, {like(scalar, x), x->getType()}, {x});
  };
  if (width > 16)
    return convert(integer, is_signed ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat);
  if (x->getType()->getScalarType()->isDoubleTy())
    return builder.CreateTrunc(convert(builder.getInt64Ty(), llvm::Intrinsic::fptosi_sat), like(integer, x));
  // Floats from 2^31 on are multiples of 2^8: int64 would leave 0 of them in 8 bits, and 32 bits are faster.
  // (Nor does LLVM 19 store <3 x i64> truncated to <3 x i8> as it should on aarch64: llvm-project#202039.)
  Lanes lanes(builder, x->getType());
  const Int wide = {&lanes, convert(builder.getInt32Ty(), llvm::Intrinsic::fptosi_sat)};
  return builder.CreateTrunc(select(abs(lanes.of(x)) < 0x1p31, wide, lanes.integer(0)).value,
                             like(integer, x));
}

}  // namespace graft::cpu
