// pow, for float: through double, so that y log2(x) keeps the bits its magnitude takes. The polynomials are
// scripts/minimax.py's.
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
  z = at_most(at_least(z, -200.0), 200.0);
  const Float t = z + kRoundDouble;
  const Float p =
      polynomial(z - (t - kRoundDouble), {0.99999999996160216, 0.69314718072881909, 0.2402265119894435,
                                          0.055504103525728925, 0.0096180271470373072, 0.0013333923006318786,
                                          0.00015469325631413592, 1.5201879753655087e-5});
  return p * from_bits((bits(t) + 1023) << 52);
}

}  // namespace

llvm::Value* emit_pow(llvm::IRBuilderBase& builder, llvm::Value* base, llvm::Value* exponent) {
  Lanes lanes(builder, base->getType());
  if (!lanes.is_float()) return call_libm(builder, "pow", base, exponent);
  Lanes wide(builder, widened(builder.getDoubleTy(), base->getType()));
  const Float x = lanes.of(base), y = lanes.of(exponent), size = abs(x), half = y * 0.5;

  const Float power = exp2_wide(widen(wide, y) * log2_wide(wide, size));
  const Float magnitude = lanes.of(builder.CreateFPTrunc(power.value, lanes.float_type));
  const Mask is_integer = round(y) == y;  // infinities, too, and even ones
  const Mask is_odd = is_integer & !(round(half) == half);
  const Float is_signed = from_bits(bits(magnitude) | (bits(x) & INT32_MIN));
  const Mask is_undefined = (x < 0.0) & (x > -kInfinity) & !is_integer & !is_nan(y);
  const Float result =
      select(is_undefined, std::numeric_limits<double>::quiet_NaN(), select(is_odd, is_signed, magnitude));
  // Also for NaN beside them, and for (-1)^infinity.
  const Mask is_one = (y == 0.0) | (x == 1.0) | ((x == -1.0) & (abs(y) == kInfinity));
  return select(is_one, 1.0, result).value;
}

}  // namespace graft::cpu
