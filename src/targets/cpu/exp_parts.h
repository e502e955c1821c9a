// The pieces exp, tanh, sigmoid, erf and their like are made of.
#pragma once
#include <cmath>

#include "targets/cpu/lanes.h"

namespace graft::cpu {

// Adding 1.5 * 2^23 to a small float rounds it to an integer, which then stands in the low bits of the sum,
// in two's complement; shifted up by 23 it is an exponent.
inline constexpr double kRound = 12582912.0;
inline constexpr double kRoundDouble = 0x1.8p52;  // the same for doubles
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

/// exp(r), to 2^-28.3.
inline Float exp_polynomial(Float r) {
  return fma(r * r, polynomial(r, {0.49999994, 0.166665211, 0.0416682661, 0.00836867839, 0.00138207339}), r) +
         1.0;
}

/// 2^r for |r| <= 1/2, to 2^-28.3.
inline Float exp2_polynomial(Float r) {
  return fma(
      r,
      polynomial(r, {0.693147182, 0.240226477, 0.0555035956, 0.00961850025, 0.00133909821, 0.000153289642}),
      1.0);
}

/// exp(r) - 1, to 2^-31.1.
inline Float expm1_polynomial(Float r) {
  return fma(r * r,
             polynomial(r, {0.5, 0.166666657, 0.0416664928, 0.00833354518, 0.00139323331, 0.000197625093}),
             r);
}

/// exp(x) 2^exponent for float x in [-104, 90]: overflow and denormals come out right, because the power of
/// two is applied in two halves.
Float exp_in_range(Float x, int exponent = 0);

}  // namespace graft::cpu
