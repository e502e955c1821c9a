// exp, log and the functions next to them. The polynomials are scripts/minimax.py's.
#include <llvm/IR/IntrinsicsX86.h>

#include <cmath>
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
  const Float p =
      polynomial(f,
                 {0.333333313, -0.250008196, 0.200012431, -0.166234091, 0.142015368, -0.131595746,
                  0.127625421, -0.0763694271},
                 {0.3333333333333314, -0.24999999999987985, 0.20000000000066429, -0.16666666669826516,
                  0.14285714280123818, -0.12499999691307999, 0.11111111145402411, -0.10000015212308995,
                  0.090909240047264, -0.08332913435657646, 0.07691528350044434, -0.07149439838047289,
                  0.06684606003141946, -0.06196691136287361, 0.05668277903113902, -0.05677622510337154,
                  0.06503682782860454, -0.059822975623069874, 0.02615453005762568});
  return f * f * fma(f, p, -0.5);
}

/// A logarithm's value where `x`, measured from its pole, is not positive and finite: -inf at the pole, NaN
/// below it and for NaN, infinity for infinity.
Float with_log_edges(Float result, Float x, double pole) {
  const Float outside = select(x == pole, -kInfinity, kNan);
  return select(x == kInfinity, kInfinity, select(x > pole, result, outside));
}

/// 1 / log(base) or log(2) / log(base), the sum of the two.
using Factor = TwoParts;

/// log(x) / log(base), given 1 / log(base) and log(2) / log(base): both in two numbers of the format, f's own
/// product is then as good as rounded once.
Float log_of_base(Float x, Factor factor, Factor per_octave) {
  const auto [exponent, f] = split(x);
  const Float tail = fma(exponent, per_octave.low, fma(f, factor.low, log_tail(f) * factor.high));
  return with_log_edges(fma(exponent, per_octave.high, fma(f, factor.high, tail)), x, 0.0);
}

/// Near 0 the function is its argument: denormals, and the sign of -0.
Float with_small_arguments(Float result, Float x) {
  return select(abs(x) < x.at->pick(0x1p-25, 0x1p-54), x, result);
}

}  // namespace

Float scaled(Float p, Float n, int exponent, Int count) {
  auto& lanes = *p.at;
  auto& b = lanes.b;
  const Float power = exponent == 0 ? n : n + exponent;
  const auto one_instruction = [&](llvm::ArrayRef<llvm::Value*> x) -> llvm::Value* {
    constexpr int all_lanes = -1, present_rounding = 4;
    auto* mask = llvm::ConstantInt::getSigned(lanes.is_float() ? b.getInt16Ty() : b.getInt8Ty(), all_lanes);
    return b.CreateIntrinsic(
        lanes.is_float() ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_512
                         : llvm::Intrinsic::x86_avx512_mask_scalef_pd_512,
        {}, {x[0], x[1], llvm::PoisonValue::get(x[0]->getType()), mask, b.getInt32(present_rounding)});
  };
  if (auto* made = by_avx512_registers(b, {p.value, power.value}, one_instruction)) return lanes.of(made);
  const Int half = count >> 1;
  const int up = lanes.fraction_bits();
  return p * from_bits(half << up) * from_bits((count - half) << up);
}

Float exp_in_range(Float x, int exponent) {
  const Reduced reduced = reduce_exp(x, 2 * x.at->bias() + exponent);
  return scaled(exp_polynomial(reduced.r), reduced.n, exponent, reduced.count);
}

llvm::Value* emit_exp(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "exp", value);
  const Float low = at_least(lanes.of(value), lanes.pick(-104.0, -746.0));
  return exp_in_range(at_most(low, lanes.pick(89.0, 710.0))).value;
}

llvm::Value* emit_exp_down(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "exp", value);
  const Float x = at_least(lanes.of(value), lanes.pick(-104.0, -746.0));
  if (has_feature(builder, "avx512f")) return exp_in_range(x).value;
  // One factor reaches all powers of two from the smallest denormal to 1 if it is so much too large.
  const int more = lanes.fraction_bits() + 2;
  const Reduced reduced = reduce_exp(x, lanes.bias() + more);
  const Float power = from_bits(reduced.count << lanes.fraction_bits());
  return (exp_polynomial(reduced.r) * power * std::ldexp(1.0, -more)).value;
}

llvm::Value* emit_exp2(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "exp2", value);
  const Float low = at_least(lanes.of(value), lanes.pick(-151.0, -1076.0));
  const Float x = at_most(low, lanes.pick(129.0, 1025.0));
  const double shifter = lanes.shifter() + 2 * lanes.bias();
  const Float t = x + shifter;
  const Float n = t - shifter;
  return scaled(exp2_polynomial(x - n), n, 0, bits(t)).value;
}

llvm::Value* emit_expm1(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "expm1", value);
  const Float x = lanes.of(value);
  // Half of it, doubled at the end: the power of two after the largest is no number, half of it is.
  const Float capped = at_most(at_least(x, lanes.pick(-18.0, -38.0)), lanes.pick(89.0, 710.0));
  const Reduced reduced = reduce_exp(capped, lanes.bias() - 1);
  const Float half_power = from_bits(reduced.count << lanes.fraction_bits());
  const Float result = fma(half_power, expm1_polynomial(reduced.r), half_power - 0.5) * 2.0;
  return with_small_arguments(result, x).value;
}

llvm::Value* emit_log(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "log", value);
  const Float x = lanes.of(value);
  const auto [high, low] = ln2_parts(lanes);
  const auto [exponent, f] = split(x);
  const Float fraction = f + fma(exponent, low, log_tail(f));
  return with_log_edges(fma(exponent, high, fraction), x, 0.0).value;
}

llvm::Value* emit_log2(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "log2", value);
  constexpr double rounded = static_cast<float>(kLog2e);
  const auto factor = lanes.pick(Factor{rounded, kLog2e - rounded}, Factor{kLog2e, 0x1.777d0ffda0d24p-56});
  return log_of_base(lanes.of(value), factor, {1.0, 0.0}).value;
}

llvm::Value* emit_log10(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "log10", value);
  // 1 / ln 10 and log10 2. The upper part of float's second has few bits, for machines without fma.
  constexpr double log10e = 0x1.bcb7b1526e50ep-2, log10e_low = 0x1.95355baaafad3p-57;
  constexpr double log10_2 = 0x1.34413509f79ffp-2, log10_2_low = -0x1.9dc1da994fd21p-59;
  constexpr double rounded = static_cast<float>(log10e), short_octave = 0x1.3440p-2;
  return log_of_base(lanes.of(value),
                     lanes.pick(Factor{rounded, log10e - rounded}, Factor{log10e, log10e_low}),
                     lanes.pick(Factor{short_octave, log10_2 - short_octave}, Factor{log10_2, log10_2_low}))
      .value;
}

llvm::Value* emit_log1p(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "log1p", value);
  const Float x = lanes.of(value);
  // 1 + x, rounded, only says which power of two 2^-e scales it; the fraction (1 + x) 2^-e - 1 is then taken
  // from x itself. 4 * 2^-e is normal even for the largest x.
  const Int moved = bits(x + 1.0) + to_sqrt_half(lanes);
  const Float exponent = exponent_of(moved, exponent_zero(lanes));
  const Int power = (moved & ~lanes.fraction_mask()) - lanes.bits_of(1.0);
  const Float scale4 = from_bits(lanes.integer(lanes.bits_of(4.0)) - power);
  const Float f = fma(x * 0.25, scale4, fma(scale4, 0.25, -1.0));
  const auto [high, low] = ln2_parts(lanes);
  const Float result = fma(exponent, high, f + fma(exponent, low, log_tail(f)));
  return with_small_arguments(with_log_edges(result, x, -1.0), x).value;
}

}  // namespace graft::cpu
