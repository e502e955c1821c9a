// How the logarithms and pow take a number apart.
#pragma once
#include "targets/cpu/lanes.h"

namespace graft::cpu {

inline constexpr double kSqrtHalf = 0.70710678118654752440;

/// Added to a number's representation, so that its exponent field counts from sqrt(1/2) and not from 1.
inline int64_t to_sqrt_half(const Lanes& lanes) { return lanes.bits_of(1.0) - lanes.bits_of(kSqrtHalf); }

/// The exponent field of a representation that is positive, less its bias and `more`, as a number: it becomes
/// the low bits of one whose last bit counts 1. (Only AVX-512 converts whole numbers of 64 bits.)
inline Float exponent_of(Int representation, Number more) {
  auto& lanes = *representation.at;
  const double whole = lanes.pick(0x1p23, 0x1p52);
  const Int field = high_bits(representation, lanes.fraction_bits());
  return from_bits(field | lanes.integer(lanes.bits_of(whole))) - more;
}
/// What exponent_of() is to take away for an exponent `e` more than there is.
inline double exponent_zero(const Lanes& lanes, int e = 0) {
  return lanes.pick(0x1p23, 0x1p52) + lanes.bias() + e;
}

/// x = 2^exponent * (1 + fraction), sqrt(1/2) <= 1 + fraction < sqrt(2), for positive finite x.
struct Split {
  Float exponent, fraction;
};
inline Split split(Float x) {
  auto& lanes = *x.at;
  const int up = lanes.fraction_bits() + 1;
  const Mask denormal = x < lanes.pick(0x1p-126, 0x1p-1022);
  const Int moved = bits(select(denormal, x * lanes.pick(0x1p24, 0x1p53), x)) + to_sqrt_half(lanes);
  const Float zero = select(denormal, exponent_zero(lanes, up), exponent_zero(lanes));
  const Int fraction = (moved & lanes.fraction_mask()) + lanes.bits_of(kSqrtHalf);
  return {exponent_of(moved, zero), from_bits(fraction) - 1.0};
}

}  // namespace graft::cpu
