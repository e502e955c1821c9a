// sin, cos and tan. The polynomials are scripts/minimax.py's.
//
// x = n pi/2 + r with pi/2 in three numbers: the first product leaves nothing behind (fma is exact there),
// the second and third less than r's own rounding, as far as kFar. Beyond it, lanes take the C library's
// value.
#include <numbers>

#include "targets/cpu/exp_parts.h"
#include "targets/cpu/slow_lanes.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {
namespace {

struct HalfPi {
  double far;  // of the argument
  double parts[3];
};
// Float's are each rounded down, so that the rests are positive.
constexpr HalfPi kOfFloat{0x1p17, {0x1.921fb4p+0, 0x1.4442dp-24, 0x1.846988p-48}};
constexpr HalfPi kOfDouble{0x1p30, {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110}};

HalfPi half_pi(const Lanes& lanes) { return lanes.pick(kOfFloat, kOfDouble); }

struct Angle {
  Int quadrant;  // n, in its low bits
  Float n, r;    // |r| <= pi/4 and a little
};
Angle reduce(Float x) {
  const HalfPi half = half_pi(*x.at);
  const auto& parts = half.parts;
  const double shifter = x.at->shifter();
  const Float t = fma(x, 2 / std::numbers::pi, shifter);
  const Float n = t - shifter;
  return {bits(t), n, fma(n, -parts[2], fma(n, -parts[1], fma(n, -parts[0], x)))};
}

Float sin_polynomial(Float r, Float square) {
  const Float p = polynomial(square, {-0.166666552, 0.00833218731, -0.000195178916},
                             {-0.1666666666666663, 0.008333333333321973, -0.00019841269829467864,
                              2.7557313577720746e-06, -2.505074071184487e-08, 1.589580969313294e-10});
  return fma(r * square, p, r);
}
Float cos_polynomial(Float square) {
  const Float p = polynomial(square, {0.0416666456, -0.00138873095, 2.44323273e-5},
                             {0.041666666666666595, -0.0013888888888872848, 2.4801587288717998e-05,
                              -2.755731413969921e-07, 2.0875695332998028e-09, -1.135824498940376e-11});
  return fma(square, fma(square, p, -0.5), 1.0);
}

/// `near`, but the C library's function where x is further out than `far`.
Float with_far_lanes(Float x, double far, Float near, const char* name) {
  auto& lanes = *x.at;
  return with_slow_lanes(near, abs(x) > far, [&] { return call_libm(lanes.b, name, x.value); });
}

/// Without fma the reduction above is not exact, and such machines are not worth another.
bool by_library(const Lanes& lanes) { return !lanes.fused; }

/// `size`, with its sign turned where the lowest bit but one of `quadrants` is set.
Float with_sign(Float size, Int quadrants) {
  auto& lanes = *size.at;
  const int up = lanes.pick(30, 62);
  return from_bits(bits(size) ^ ((quadrants << up) & lanes.sign_bit()));
}

Float tan_polynomial(Float square) {
  return polynomial(
      square,
      {0.333333492, 0.133326724, 0.0540594608, 0.0212826077, 0.0108383317, 8.28240154e-5, 0.00438098609},
      {0.33333333333332754, 0.13333333333417513, 0.053968253925286556, 0.021869489642098634,
       0.00886321869800229, 0.0035922932874358675, 0.0014547323740796217, 0.0005951725811039544,
       0.00022206124910479036, 0.00013718320057477646, -2.7315390014303627e-05, 9.030847911692685e-05,
       -4.5339915431361744e-05, 2.0974980159615038e-05});
}

/// Of double, with a second part of 33 bits: its product with n leaves nothing behind, either. Numbers that
/// are so far out that it would are the C library's.
constexpr HalfPi kOfDoubleTan{0x1p20, {0x1.921fb54442d18p+0, 0x1.1a626331p-54, 0x1.1701b839a252p-88}};

HalfPi half_pi_of_tan(const Lanes& lanes) { return lanes.pick(kOfFloat, kOfDoubleTan); }

/// With what is lost in r: beside the tangent's own rounding and that of the division it would be too much.
Float near_tan(Float x) {
  const auto& lanes = *x.at;
  const HalfPi half = half_pi_of_tan(lanes);
  const auto& parts = half.parts;
  const Float t = fma(x, 2 / std::numbers::pi, lanes.shifter());
  const Float n = t - lanes.shifter();
  const Float first = fma(n, -parts[0], x);  // exact
  // What `high` has too much: taken away as -0, where there is none, it leaves the sign of -0.
  Float high = fma(n, -parts[1], first), more = fma(n, parts[1], high - first);
  if (lanes.is_float()) {
    // Near a pole or a zero far out, `high` has bits below all of those of `first`.
    const Float product = n * parts[1];
    high = first - product;
    more = ((high - first) + product) + fma(n, parts[1], -product);
  }
  more = fma(n, parts[2], more);
  const Float square = high * high;
  const Float rest = fma(high * square, tan_polynomial(square), fma(-more, square, -more));
  const Float tangent = high + rest;
  Float cotangent = -1.0 / tangent;
  if (lanes.is_float()) {
    // -1 / (high + rest) by one step of Newton's: far out r is a little over pi/4, and a tangent just above 1
    // has lost as much again.
    const Float error = fma(cotangent, rest, fma(cotangent, high, 1.0));
    cotangent = fma(cotangent, error, cotangent);
  }
  return select((bits(t) & 1) == 0, tangent, cotangent);
}

}  // namespace

llvm::Value* emit_sin(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (by_library(lanes)) return call_libm(builder, "sin", value);
  const Float x = lanes.of(value);
  const auto [quadrant, n, r] = reduce(abs(x));
  const Float square = r * r;
  const Float size = select((quadrant & 1) == 0, sin_polynomial(r, square), cos_polynomial(square));
  const Float turned = with_sign(size, quadrant);
  return with_far_lanes(x, half_pi(lanes).far, from_bits(bits(turned) ^ (bits(x) & lanes.sign_bit())), "sin")
      .value;
}

llvm::Value* emit_cos(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (by_library(lanes)) return call_libm(builder, "cos", value);
  const Float x = lanes.of(value);
  const auto [quadrant, n, r] = reduce(x);
  const Float square = r * r;
  const Float size = select((quadrant & 1) == 0, cos_polynomial(square), sin_polynomial(r, square));
  return with_far_lanes(x, half_pi(lanes).far, with_sign(size, quadrant + 1), "cos").value;
}

llvm::Value* emit_tan(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (by_library(lanes)) return call_libm(builder, "tan", value);
  const Float x = lanes.of(value);
  return with_far_lanes(x, half_pi_of_tan(lanes).far, near_tan(x), "tan").value;
}

}  // namespace graft::cpu
