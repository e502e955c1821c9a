// tanh, sigmoid, erf and the hyperbolic functions, for float: activations, so branch-free and with one
// division at most. The polynomials are scripts/minimax.py's.
#include "targets/cpu/exp_parts.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {

llvm::Value* emit_tanh(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "tanh", value);
  const Float x = lanes.of(value);
  const Float square = x * x;
  const Float small =
      fma(x * square,
          polynomial(square, {-0.333333164, 0.133325458, -0.0538478717, 0.0210527703, -0.00624684803}), x);
  // 1 - 2 / (exp(2 |x|) + 1); from 9.02 on it rounds to 1.
  const Float size = at_most(abs(x), 9.02);
  const Reduced reduced = reduce_exp(size * 2.0, 0);
  const Float e = from_bits(bits(exp_polynomial(reduced.r)) + (reduced.count << 23));
  const Float large = 1.0 - 2.0 / (e + 1.0);
  return copysign(select(size > 0.55, large, small), x).value;  // NaN is in `small`; -0 is not any more
}

llvm::Value* emit_sigmoid(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) {
    // The smaller of e^x and e^-x, which never overflows: far below zero the result is a denormal, not 0.
    const Float x = lanes.of(value);
    const Float e = lanes.of(call_libm(builder, "exp", (-abs(x)).value));
    return (select(x < 0.0, e, 1.0) / (1.0 + e)).value;
  }
  // e^x / (1 + e^x) = e^r / (2^-n + e^r), with at most 2^64 in the denominator: what 2^-n has more comes
  // last, where it makes denormals. Both sides of the fraction are taken 3/2 times. Just below a power of
  // two, where the last place is smallest beside the quotient, they would be just above one, where it is
  // largest; so their mantissas are 1.4 to 1.95, and a third of an ulp is saved.
  constexpr double kShare = 1.5;
  const Float x = at_most(at_least(lanes.of(value), -104.0), 30.0);
  const Float t = fma(x, -kLog2e, kRound + 127);
  const Float n = (kRound + 127) - t;
  const Float r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
  const Float q = polynomial(r, {0.749999881, 0.249997839, 0.0625030175, 0.0125528127, 0.00206998992});
  const Float p = fma(r, fma(r, q, kShare), kShare);
  const Int capped = bits(at_most(t, kRound + 127 + 64));
  const Float rest = from_bits(((capped - bits(t)) << 23) + 0x3f800000);
  return (p / fma(from_bits(capped << 23), kShare, p) * rest).value;
}

llvm::Value* emit_erf(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "erf", value);
  const Float x = lanes.of(value), size = abs(x);
  const Float small_factor = polynomial(
      x * x, {0.128379166, -0.376126051, 0.112831131, -0.0268197544, 0.00508193439, -0.000650873582});
  const Float small = fma(x, small_factor, x);
  // 1 - 2^y; from 4 on it rounds to 1.
  const Float capped = at_most(size, 4.0);
  const Float y = capped * polynomial(capped, {-1.62819135, -0.916772306, -0.152503505, 0.0335964002,
                                               -0.00491860369, 0.000380011625, -7.35596677e-6});
  const Float t = y + kRound;
  const Float p = exp2_polynomial(y - (t - kRound));
  const Float large = 1.0 - from_bits(bits(p) + (bits(t) << 23));
  return select(size > 0.8, copysign(large, x), small).value;  // NaN is in `small`
}

llvm::Value* emit_erfc(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "erfc", value);
  // glibc's erfcf is off by up to 2.4 ulp, and nothing hot uses this one.
  auto* wide = builder.CreateFPExt(value, widened(builder.getDoubleTy(), value->getType()));
  return builder.CreateFPTrunc(call_libm(builder, "erfc", wide), value->getType());
}

llvm::Value* emit_sinh(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "sinh", value);
  const Float x = lanes.of(value), size = abs(x), square = x * x;
  const Float small =
      fma(x * square, polynomial(square, {0.166666672, 0.00833331048, 0.000198428941, 2.78223024e-6}), x);
  const Float e = exp_in_range(at_most(size, 90.0), -1);
  return select(size > 1.0, copysign(e - 0.25 / e, x), small).value;  // NaN is in `small`
}

llvm::Value* emit_cosh(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "cosh", value);
  const Float e = exp_in_range(at_most(abs(lanes.of(value)), 90.0), -1);
  return (e + 0.25 / e).value;
}

}  // namespace graft::cpu
