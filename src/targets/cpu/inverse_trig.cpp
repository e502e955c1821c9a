// asin, acos, atan and atan2. The polynomials are scripts/minimax.py's.
#include <limits>
#include <numbers>

#include "targets/cpu/lanes.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {
namespace {

/// pi/2 in two numbers of the format.
struct HalfPi {
  double high, rest;
};
HalfPi half_pi(const Lanes& lanes) {
  constexpr double rounded = static_cast<float>(std::numbers::pi / 2);
  return lanes.pick(HalfPi{rounded, std::numbers::pi / 2 - rounded},
                    HalfPi{std::numbers::pi / 2, 0x1.1a62633145c07p-54});
}
// More than sin(pi/6): the folded angle is then below 1/2, and twice as exact.
constexpr double kFold = 0.5625;

/// asin(s) for 0 <= s <= kFold, where square is s^2.
Float asin_polynomial(Float s, Float square) {
  const Float p =
      polynomial(square, {0.166666314, 0.0750209913, 0.0442318246, 0.0340139233, 0.00673138537, 0.0474979617},
                 {0.1666666666666632, 0.07500000000098127, 0.0446428570461474, 0.030381949253699986,
                  0.0223720176156258, 0.01735544977621672, 0.013930220520719835, 0.011864263133023011,
                  0.00775925706943166, 0.017506177587400508, -0.02172098736575813, 0.06868772912917862,
                  -0.07682874776619364, 0.05985507984485967});
  return fma(s * square, p, s);
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

/// atan(t) for 0 <= t <= 1.
Float atan_up_to_one(Float t) {
  const Float square = t * t;
  const Float p = polynomial(
      square,
      {-0.333331525, 0.199937671, -0.142110035, 0.106657825, -0.0755170584, 0.0432054624, -0.016363753,
       0.00291958847},
      {-0.3333333333333307,    0.19999999999951476,   -0.1428571428257542,     0.11111111007017146,
       -0.090909070025314,     0.07692279830814404,   -0.06666403965905451,    0.05880527150332877,
       -0.052535151153920254,  0.047223090447870715,  -0.04219140756450258,    0.036641062095183204,
       -0.029902405985207693,  0.021982942541523182,  -0.013898645035781056,   0.007195067697396413,
       -0.0028841394359983047, 0.0008310328409023771, -0.00015209530546269638, 1.321821773936916e-05});
  return fma(t * square, p, t);
}

}  // namespace

llvm::Value* emit_asin(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "asin", value);
  const Float x = lanes.of(value);
  const auto [high, rest] = half_pi(lanes);
  const auto [is_large, angle] = fold(abs(x));
  return copysign(select(is_large, high + fma(angle, -2.0, rest), angle), x).value;
}

llvm::Value* emit_acos(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "acos", value);
  const Float x = lanes.of(value);
  const auto [high, rest] = half_pi(lanes);
  const auto [is_large, angle] = fold(abs(x));
  // 2 angle for large x, pi - 2 angle for large -x, pi/2 - angle for small ones.
  const Float twice = angle * 2.0;
  const Float large = select(x < 0.0, 2 * high + (2 * rest - twice), twice);
  const Float small = high + (rest - copysign(angle, x));
  return select(is_large, large, small).value;
}

llvm::Value* emit_atan(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "atan", value);
  const Float x = lanes.of(value), size = abs(x);
  const Mask is_large = size > 1.0;
  const Float t = select(is_large, 1.0 / size, size);
  const auto [high, rest] = half_pi(lanes);
  const Float angle = atan_up_to_one(t);
  return copysign(select(is_large, high + (rest - angle), angle), x).value;
}

llvm::Value* emit_atan2(llvm::IRBuilderBase& builder, llvm::Value* above, llvm::Value* beside) {
  Lanes lanes(builder, above->getType());
  if (lanes.by_library()) return call_libm(builder, "atan2", above, beside);
  const Float y = lanes.of(above), x = lanes.of(beside), height = abs(y), width = abs(x);
  const auto [high, rest] = half_pi(lanes);
  const Mask steep = height > width;
  const Float small = select(steep, width, height), large = select(steep, height, width);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Float quotient = select(large == 0.0, small, small / large);
  const Float t = select(small == infinity, 1.0, quotient);
  const Float angle = atan_up_to_one(t);
  const Float turned = select(steep, high + (rest - angle), angle);
  const Mask backwards = (bits(x) & lanes.sign_bit()) != 0;
  const Float whole = select(backwards, 2 * high + (2 * rest - turned), turned);
  return copysign(select(is_nan(x), x, select(is_nan(y), y, whole)), y).value;
}

}  // namespace graft::cpu
