// exp, log and the functions next to them, for float. The polynomials are scripts/minimax.py's.
#include <limits>

#include "target/cpu/exp_parts.h"
#include "target/cpu/vector_math.h"

namespace graft::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int32_t kSqrtHalfBits = 0x3f3504f3;
constexpr int32_t kFractionBits = 0x7fffff;

/// x = 2^exponent * (1 + fraction), sqrt(1/2) <= 1 + fraction < sqrt(2), for positive finite x.
struct Split {
  Float exponent, fraction;
};
Split split(Float x) {
  const Mask denormal = x < 0x1p-126;
  const Int shifted = bits(select(denormal, x * 0x1p24, x)) - kSqrtHalfBits;
  const Float exponent = to_float(shifted >> 23) - select(denormal, 24.0, 0.0);
  return {exponent, from_bits((shifted & kFractionBits) + kSqrtHalfBits) - 1.0};
}

/// log(1 + f) - f for f from split(), accurate beside f.
Float log_tail(Float f) {
  const Float p = polynomial(f, {0.333333313, -0.250008225, 0.200012609, -0.166232884, 0.142008603, -0.131585896,
                                 0.127613932, -0.0763539299});
  return f * f * fma(f, p, -0.5);
}

/// A logarithm's value where `x`, measured from its pole, is not positive and finite: -inf at the pole, NaN below
/// it and for NaN, infinity for infinity.
Float with_log_edges(Float result, Float x, double pole) {
  const Float outside = select(x == pole, -kInfinity, kNan);
  return select(x == kInfinity, kInfinity, select(x > pole, result, outside));
}

/// log(x) / log(base), given 1 / log(base) and log(2) / log(base).
llvm::Value* log_of_base(llvm::IRBuilderBase& builder, llvm::Value* value, double factor, double per_octave) {
  Lanes lanes(builder, value->getType());
  const Float x = lanes.of(value);
  const auto [exponent, f] = split(x);
  // Both factors in two floats: f's own product is then as good as rounded once.
  const double factor_high = static_cast<float>(factor);
  const double octave_high = std::round(per_octave * 0x1p15) * 0x1p-15;
  const Float tail = fma(exponent, per_octave - octave_high, fma(f, factor - factor_high, log_tail(f) * factor));
  return with_log_edges(fma(exponent, octave_high, fma(f, factor_high, tail)), x, 0.0).value;
}

}  // namespace

Float exp_in_range(Float x) {
  const Reduced whole = reduce_exp(x, 254);
  const Int half = bits(fma(x, kLog2e / 2, kRound + 127));
  const Float scaled = exp_polynomial(whole.r) * from_bits(half << 23);
  return scaled * from_bits((whole.count - half) << 23);
}

llvm::Value* emit_exp(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "exp", value);
  return exp_in_range(at_most(at_least(lanes.of(value), -104.0), 89.0)).value;
}

llvm::Value* emit_exp2(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "exp2", value);
  const Float x = at_most(at_least(lanes.of(value), -151.0), 129.0);
  const Float whole = x + (kRound + 254);
  const Int half = bits(fma(x, 0.5, kRound + 127));
  const Float p = exp2_polynomial(x - (whole - (kRound + 254)));
  return (p * from_bits(half << 23) * from_bits((bits(whole) - half) << 23)).value;
}

llvm::Value* emit_expm1(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "expm1", value);
  const Float x = lanes.of(value);
  // Half of it, doubled at the end: 2^128 is no float, half of it is.
  const Reduced reduced = reduce_exp(at_most(at_least(x, -18.0), 89.0), 126);
  const Float half_power = from_bits(reduced.count << 23);
  const Float result = fma(half_power, expm1_polynomial(reduced.r), half_power - 0.5) * 2.0;
  return select(abs(x) < 0x1p-25, x, result).value;  // denormals, and the sign of -0
}

llvm::Value* emit_log(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "log", value);
  const Float x = lanes.of(value);
  const auto [exponent, f] = split(x);
  const Float fraction = f + fma(exponent, kLn2Low, log_tail(f));
  return with_log_edges(fma(exponent, kLn2High, fraction), x, 0.0).value;
}

llvm::Value* emit_log2(llvm::IRBuilderBase& builder, llvm::Value* value) {
  if (!value->getType()->getScalarType()->isFloatTy()) return call_libm(builder, "log2", value);
  return log_of_base(builder, value, kLog2e, 1.0);
}

llvm::Value* emit_log10(llvm::IRBuilderBase& builder, llvm::Value* value) {
  if (!value->getType()->getScalarType()->isFloatTy()) return call_libm(builder, "log10", value);
  return log_of_base(builder, value, 0.434294481903251827651, 0.301029995663981195214);
}

llvm::Value* emit_log1p(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "log1p", value);
  const Float x = lanes.of(value);
  // 1 + x, rounded, only says which power of two 2^-e scales it; the fraction (1 + x) 2^-e - 1 is then taken from x
  // itself. 4 * 2^-e is normal even for the largest x.
  const Int shifted = bits(x + 1.0) - kSqrtHalfBits;
  const Float exponent = to_float(shifted >> 23);
  const Float scale4 = from_bits(lanes.integer(0x40800000) - (shifted & ~int64_t{kFractionBits}));
  const Float f = fma(x * 0.25, scale4, fma(scale4, 0.25, -1.0));
  const Float result = fma(exponent, kLn2High, f + fma(exponent, kLn2Low, log_tail(f)));
  return select(abs(x) < 0x1p-25, x, with_log_edges(result, x, -1.0)).value;
}

}  // namespace graft::cpu
