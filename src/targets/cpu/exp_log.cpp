// exp, log and the functions next to them, for float. The polynomials are scripts/minimax.py's.
#include <llvm/IR/IntrinsicsX86.h>

#include <limits>

#include "targets/cpu/exp_parts.h"
#include "targets/cpu/log_parts.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// log(1 + f) - f for f from split(), accurate beside f.
Float log_tail(Float f) {
  const Float p = polynomial(f, {0.333333313, -0.250008196, 0.200012431, -0.166234091, 0.142015368,
                                 -0.131595746, 0.127625421, -0.0763694271});
  return f * f * fma(f, p, -0.5);
}

/// p 2^(n + exponent), given n + exponent + 254 in the low bits of `count`, in two factors: one would not
/// reach all exponents. AVX-512 has an instruction for it.
Float scaled(Float p, Float n, int exponent, Int count) {
  auto& lanes = *p.at;
  const Float power = exponent == 0 ? n : n + exponent;
  const auto one_instruction = [&](llvm::ArrayRef<llvm::Value*> x) -> llvm::Value* {
    constexpr int all_lanes = -1, present_rounding = 4;
    return lanes.b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                                   {x[0], x[1], llvm::PoisonValue::get(x[0]->getType()),
                                    lanes.b.getInt16(all_lanes), lanes.b.getInt32(present_rounding)});
  };
  if (auto* made = by_avx512_registers(lanes.b, {p.value, power.value}, one_instruction))
    return lanes.of(made);
  const Int half = count >> 1;
  return p * from_bits(half << 23) * from_bits((count - half) << 23);
}

/// A logarithm's value where `x`, measured from its pole, is not positive and finite: -inf at the pole, NaN
/// below it and for NaN, infinity for infinity.
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
  const Float tail =
      fma(exponent, per_octave - octave_high, fma(f, factor - factor_high, log_tail(f) * factor));
  return with_log_edges(fma(exponent, octave_high, fma(f, factor_high, tail)), x, 0.0).value;
}

}  // namespace

Float exp_in_range(Float x, int exponent) {
  const Reduced reduced = reduce_exp(x, 254 + exponent);
  return scaled(exp_polynomial(reduced.r), reduced.n, exponent, reduced.count);
}

llvm::Value* emit_exp(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "exp", value);
  return exp_in_range(at_most(at_least(lanes.of(value), -104.0), 89.0)).value;
}

llvm::Value* emit_exp_down(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "exp", value);
  const Float x = at_least(lanes.of(value), -104.0);
  if (has_feature(builder, "avx512f")) return exp_in_range(x).value;
  // One factor reaches all powers of two from 2^-150 to 1 if it is 2^25 times too large.
  const Reduced reduced = reduce_exp(x, 127 + 25);
  return (exp_polynomial(reduced.r) * from_bits(reduced.count << 23) * 0x1p-25).value;
}

llvm::Value* emit_exp2(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "exp2", value);
  const Float x = at_most(at_least(lanes.of(value), -151.0), 129.0);
  const Float t = x + (kRound + 254);
  const Float n = t - (kRound + 254);
  return scaled(exp2_polynomial(x - n), n, 0, bits(t)).value;
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
  // 1 + x, rounded, only says which power of two 2^-e scales it; the fraction (1 + x) 2^-e - 1 is then taken
  // from x itself. 4 * 2^-e is normal even for the largest x.
  const Int shifted = bits(x + 1.0) - kSqrtHalfBits;
  const Float exponent = to_float(shifted >> 23);
  const Float scale4 = from_bits(lanes.integer(0x40800000) - (shifted & ~int64_t{kFractionBits}));
  const Float f = fma(x * 0.25, scale4, fma(scale4, 0.25, -1.0));
  const Float result = fma(exponent, kLn2High, f + fma(exponent, kLn2Low, log_tail(f)));
  return select(abs(x) < 0x1p-25, x, with_log_edges(result, x, -1.0)).value;
}

}  // namespace graft::cpu
