// The pieces exp, tanh, sigmoid, erf and their like are made of. Each polynomial is given for float and for
// double; the errors named are theirs.
#pragma once
#include "targets/cpu/lanes.h"

namespace graft::cpu {

inline constexpr double kLog2e = 1.44269504088896340736;
inline constexpr double kLn2 = 0.693147180559945309417;
// ln 2 in two parts. Of float the upper has 16 bits: its product with an exponent is exact without fma, too.
struct TwoParts {
  double high, low;
};
inline TwoParts ln2_parts(const Lanes& lanes) {
  constexpr double upper = 0x1.62e4p-1;
  return lanes.is_float() ? TwoParts{upper, kLn2 - upper} : TwoParts{kLn2, 0x1.abc9e3b39803fp-56};
}

/// x = n ln 2 + r, |r| <= ln(2) / 2 and a little. `count` holds n + bias in its low bits.
struct Reduced {
  Int count;
  Float n, r;
};
inline Reduced reduce_exp(Float x, int bias) {
  const double shifter = x.at->shifter() + bias;
  const auto [high, low] = ln2_parts(*x.at);
  const Float t = fma(x, kLog2e, shifter);
  const Float n = t - shifter;
  return {bits(t), n, fma(n, -low, fma(n, -high, x))};
}

/// (exp(r) - 1 - r) / r^2 as exp(r) needs it, to 2^-28.3 and 2^-56.5.
inline Float exp_rest(Float r) {
  return polynomial(r, {0.49999994, 0.166665211, 0.0416682661, 0.00836867839, 0.00138207339},
                    {0.5000000000000011, 0.16666666666666413, 0.04166666666652992, 0.008333333333494838,
                     0.0013888888943702703, 0.00019841269505933127, 2.480149301563728e-05,
                     2.7557586797561926e-06, 2.763028060591777e-07, 2.4999976460990837e-08});
}
inline Float exp_polynomial(Float r) { return fma(r * r, exp_rest(r), r) + 1.0; }

/// 2^r for |r| <= 1/2, to 2^-28.3 and 2^-55.0.
inline Float exp2_polynomial(Float r) {
  return fma(
      r,
      polynomial(
          r, {0.693147182, 0.240226477, 0.0555035956, 0.00961850025, 0.00133909821, 0.000153289642},
          {0.6931471805599453, 0.2402265069591013, 0.05550410866482008, 0.009618129107594053,
           0.0013333558146775306, 0.00015403530457205178, 1.5252733492654004e-05, 1.3215435232461867e-06,
           1.0178199693897843e-07, 7.0737923318039565e-09, 4.43476375983429e-10}),
      1.0);
}

/// exp(r) - 1, to 2^-31.1 and 2^-58.9.
inline Float expm1_polynomial(Float r) {
  return fma(
      r * r,
      polynomial(r, {0.5, 0.166666657, 0.0416664928, 0.00833354518, 0.00139323331, 0.000197625093},
                 {0.5, 0.16666666666666677, 0.041666666666666574, 0.008333333333322139, 0.0013888888888942815,
                  0.00019841269885005028, 2.4801587197968968e-05, 2.7557245223616123e-06,
                  2.7557387205646225e-07, 2.5108713439155075e-08, 2.087888114731644e-09}),
      r);
}

/// p 2^(n + exponent), given n + exponent + 2 * bias in the low bits of `count`: overflow and denormals come
/// out right, because the power of two is applied in two halves (AVX-512 has an instruction for it).
Float scaled(Float p, Float n, int exponent, Int count);

/// exp(x) 2^exponent for x in [-104, 90], of double in [-746, 712].
Float exp_in_range(Float x, int exponent = 0);

}  // namespace graft::cpu
