// pow. Float goes through double, so that y log2(x) keeps the bits its magnitude takes; double has the
// logarithm in two numbers. The polynomials are scripts/minimax.py's.
#include <limits>

#include "targets/cpu/exp_parts.h"
#include "targets/cpu/log_parts.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Float widen(Lanes& wide, Float x) { return wide.of(wide.b.CreateFPExt(x.value, wide.float_type)); }

/// log2 of a float that is not negative, to 2^-38.
Float log2_wide(Lanes& wide, Float x) {
  const auto [exponent, fraction] = split(x);
  const Float f = widen(wide, fraction);
  const Float p =
      polynomial(f, {1.4426950408865695, -0.72134752032750049, 0.48089834880358262, -0.3606737931559913,
                     0.28853879568834001, -0.24044643234917695, 0.20610712313134497, -0.18043678375652947,
                     0.1602167064447825, -0.14249826094284204, 0.13027480018985685, -0.13463052762980074,
                     0.13251671346585331, -0.069742502852712662});
  const Float edge = select(x == 0.0, -kInfinity, x);  // infinity and NaN are themselves
  const Mask ordinary = {&wide, ((x > 0.0) & (x < kInfinity)).value};
  return select(ordinary, fma(f, p, widen(wide, exponent)), widen(wide, edge));
}

/// 2^z, from 0 to infinity in float's range.
Float exp2_wide(Float z) {
  const double shifter = z.at->shifter();
  z = at_most(at_least(z, -200.0), 200.0);
  const Float t = z + shifter;
  const Float p =
      polynomial(z - (t - shifter), {0.99999999996160216, 0.69314718072881909, 0.2402265119894435,
                                     0.055504103525728925, 0.0096180271470373072, 0.0013333923006318786,
                                     0.00015469325631413592, 1.5201879753655087e-5});
  return p * from_bits((bits(t) + 1023) << 52);
}

/// |x|^y of floats.
Float float_power(Lanes& lanes, Float size, Float y) {
  Lanes wide(lanes.b, widened(lanes.b.getDoubleTy(), lanes.float_type));
  const Float power = exp2_wide(widen(wide, y) * log2_wide(wide, size));
  return lanes.of(lanes.b.CreateFPTrunc(power.value, lanes.float_type));
}

/// The sum of two doubles, `low` small beside `high`.
struct Twofold {
  Float high, low;
};
/// Of |x| >= |y|, or x = 0; exact.
Twofold fast_sum(Number x, Float y) {
  const Float sum = x + y;
  return {sum, y - (sum - x)};
}
Twofold product(Float x, Float y) {
  const Float high = x * y;
  return {high, fma(x, y, -high)};
}
/// But for the product of both lower parts.
Twofold operator*(Twofold x, Twofold y) {
  const auto [high, low] = product(x.high, y.high);
  return {high, fma(x.low, y.high, fma(x.high, y.low, low))};
}

/// log of doubles that are not negative, to 2^-65 of itself: of s = (m - 1) / (m + 1), where x = 2^e m, it is
/// e ln 2 + 2 s + s^3 (2/3 + s^2 p(s^2)).
Twofold log_twofold(Float x) {
  const auto [exponent, f] = split(x);
  const auto [sum, sum_low] = fast_sum(2.0, f);
  const Float inverse = 1.0 / sum;
  const Float quotient = f * inverse;
  const Twofold s{quotient, fma(-quotient, sum_low, fma(-quotient, sum, f)) * inverse};
  const Twofold square = s * s;
  const Float rest =
      square.high * polynomial(square.high, {0.39999999999999974, 0.28571428571445356, 0.2222222221747705,
                                             0.18181818877605968, 0.15384556373383632, 0.133363365733628,
                                             0.11674429448711951, 0.11992255563872348});
  constexpr double two_thirds = 0x1.5555555555555p-1, two_thirds_low = 0x1.5555555555555p-55;
  const auto [factor, factor_low] = fast_sum(two_thirds, rest);
  const Twofold tail = s * square * Twofold{factor, factor_low + two_thirds_low};
  // ln 2 with an upper part of 42 bits: its product with the exponent is exact.
  constexpr double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
  const auto [first, first_low] = fast_sum(exponent * ln2_high, s.high * 2.0);
  const auto [high, second_low] = fast_sum(first, tail.high);
  const Float low = (first_low + second_low) + fma(exponent, ln2_low, fma(s.low, 2.0, tail.low));
  const Float edge = select(x == 0.0, -kInfinity, x);  // infinity and NaN are themselves
  const Mask ordinary = (x > 0.0) & (x < kInfinity);
  return {select(ordinary, high, edge), select(ordinary, low, 0.0)};
}

/// |x|^y of doubles.
Float double_power(Float size, Float y) {
  const auto log = log_twofold(size);
  auto [high, low] = product(log.high, y);
  low = fma(log.low, y, low);
  low = select(abs(high) < 800.0, low, 0.0);  // else it may be NaN, of an infinity less itself
  const Float z = at_most(at_least(high, -800.0), 800.0);
  const Reduced reduced = reduce_exp(z, 2 * z.at->bias());
  const Float r = reduced.r + low;
  return scaled(exp_polynomial(r), reduced.n, 0, reduced.count);
}

}  // namespace

llvm::Value* emit_pow(llvm::IRBuilderBase& builder, llvm::Value* base, llvm::Value* exponent) {
  Lanes lanes(builder, base->getType());
  if (lanes.by_library()) return call_libm(builder, "pow", base, exponent);
  const Float x = lanes.of(base), y = lanes.of(exponent), size = abs(x), half = y * 0.5;

  const Float magnitude = lanes.is_float() ? float_power(lanes, size, y) : double_power(size, y);
  const Mask is_integer = round(y) == y;  // infinities, too, and even ones
  const Mask is_odd = is_integer & !(round(half) == half);
  const Float is_signed = from_bits(bits(magnitude) | (bits(x) & lanes.sign_bit()));
  const Mask is_undefined = (x < 0.0) & (x > -kInfinity) & !is_integer & !is_nan(y);
  const Float result =
      select(is_undefined, std::numeric_limits<double>::quiet_NaN(), select(is_odd, is_signed, magnitude));
  // Also for NaN beside them, and for (-1)^infinity.
  const Mask is_one = (y == 0.0) | (x == 1.0) | ((x == -1.0) & (abs(y) == kInfinity));
  return select(is_one, 1.0, result).value;
}

}  // namespace graft::cpu
