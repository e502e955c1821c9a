// The pieces exp, tanh, sigmoid, erf and their like are made of.
#pragma once
#include <cmath>

#include "target/cpu/lanes.h"

namespace graft::cpu {

// Adding 1.5 * 2^23 to a small float rounds it to an integer, which then stands in the low bits of the sum, in two's
// complement; shifted up by 23 it is an exponent.
inline constexpr double kRound = 12582912.0;
inline constexpr double kLog2e = 1.44269504088896340736;
inline constexpr double kLn2 = 0.693147180559945309417;
// ln 2 in two parts, the upper of 16 bits: its product with an exponent is exact without fma, too.
inline constexpr double kLn2High = 0x1.62e4p-1;
inline constexpr double kLn2Low = kLn2 - kLn2High;

/// x = n ln 2 + r, |r| <= ln(2) / 2 and a little. `count` holds n + bias in its low bits.
struct Reduced {
  Int count;
  Float n, r;
};
inline Reduced reduce_exp(Float x, int bias) {
  const Float t = fma(x, kLog2e, kRound + bias);
  const Float n = t - (kRound + bias);
  return {bits(t), n, fma(n, -kLn2Low, fma(n, -kLn2High, x))};
}

/// exp(r), to 2^-27.8.
inline Float exp_polynomial(Float r) {
  return polynomial(r, {1.0, 1.0, 0.5, 0.1666648835, 0.04166555405, 0.008372281678, 0.001403511851});
}

/// 2^r for |r| <= 1/2, to 2^-27.4.
inline Float exp2_polynomial(Float r) {
  return polynomial(r, {1.0, 0.6931472421, 0.2402265519, 0.05550272763, 0.009617069736, 0.001341748866, 0.0001580981916});
}

/// exp(r) - 1, to 2^-28.2.
inline Float expm1_polynomial(Float r) {
  return fma(r * r, polynomial(r, {0.5, 0.166666359, 0.0416665114, 0.00834150426, 0.00139305054, 0.000150528707}), r);
}

/// exp(x) for float x in [-104, 89]: overflow and denormals come out right, because the power of two is applied in
/// two halves.
Float exp_in_range(Float x);

}  // namespace graft::cpu
