// How the logarithms and pow take a float apart.
#pragma once
#include "targets/cpu/lanes.h"

namespace graft::cpu {

inline constexpr int32_t kSqrtHalfBits = 0x3f3504f3;
inline constexpr int32_t kFractionBits = 0x7fffff;

/// x = 2^exponent * (1 + fraction), sqrt(1/2) <= 1 + fraction < sqrt(2), for positive finite floats x.
struct Split {
  Float exponent, fraction;
};
inline Split split(Float x) {
  const Mask denormal = x < 0x1p-126;
  const Int shifted = bits(select(denormal, x * 0x1p24, x)) - kSqrtHalfBits;
  const Float exponent = to_float(shifted >> 23) - select(denormal, 24.0, 0.0);
  return {exponent, from_bits((shifted & kFractionBits) + kSqrtHalfBits) - 1.0};
}

}  // namespace graft::cpu
