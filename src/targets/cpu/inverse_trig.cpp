// asin, acos and atan, for float. The polynomials are scripts/minimax.py's.
#include <numbers>

#include "targets/cpu/lanes.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {
namespace {

constexpr double kHalfPi = static_cast<float>(std::numbers::pi / 2);
constexpr double kHalfPiRest = std::numbers::pi / 2 - kHalfPi;
constexpr double kFold =
    0.5625;  // more than sin(pi/6): the folded angle is then below 1/2, and twice as exact

/// asin(s) for 0 <= s <= kFold, where square is s^2.
Float asin_polynomial(Float s, Float square) {
  return fma(s * square,
             polynomial(square,
                        {0.166666314, 0.0750209913, 0.0442318246, 0.0340139233, 0.00673138537, 0.0474979617}),
             s);
}

/// asin(|x|) = angle up to kFold, and pi/2 - 2 angle from there, with angle = asin(sqrt((1 - |x|) / 2)).
struct Folded {
  Mask is_large;
  Float angle;
};
Folded fold(Float size) {
  const Mask is_large = size > kFold;
  const Float square = select(is_large, fma(size, -0.5, 0.5), size * size);
  return {is_large, asin_polynomial(select(is_large, sqrt(square), size), square)};
}

}  // namespace

llvm::Value* emit_asin(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "asin", value);
  const Float x = lanes.of(value);
  const auto [is_large, angle] = fold(abs(x));
  return copysign(select(is_large, kHalfPi + fma(angle, -2.0, kHalfPiRest), angle), x).value;
}

llvm::Value* emit_acos(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "acos", value);
  const Float x = lanes.of(value);
  const auto [is_large, angle] = fold(abs(x));
  // 2 angle for large x, pi - 2 angle for large -x, pi/2 - angle for small ones.
  const Float twice = angle * 2.0;
  const Float large = select(x < 0.0, 2 * kHalfPi + (2 * kHalfPiRest - twice), twice);
  const Float small = kHalfPi + (kHalfPiRest - copysign(angle, x));
  return select(is_large, large, small).value;
}

llvm::Value* emit_atan(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "atan", value);
  const Float x = lanes.of(value), size = abs(x);
  const Mask is_large = size > 1.0;
  const Float t = select(is_large, 1.0 / size, size);
  const Float square = t * t;
  const Float p = polynomial(square, {-0.333331525, 0.199937671, -0.142110035, 0.106657825, -0.0755170584,
                                      0.0432054624, -0.016363753, 0.00291958847});
  const Float angle = fma(t * square, p, t);
  return copysign(select(is_large, kHalfPi + (kHalfPiRest - angle), angle), x).value;
}

}  // namespace graft::cpu
