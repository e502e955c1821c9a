// tanh, sigmoid, erf and the hyperbolic functions, for float: activations, so branch-free and with one division at
// most. The polynomials are scripts/minimax.py's.
#include "target/cpu/exp_parts.h"
#include "target/cpu/vector_math.h"

namespace graft::cpu {

llvm::Value* emit_tanh(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "tanh", value);
  const Float x = lanes.of(value);
  // expm1(2 |x|) / (expm1(2 |x|) + 2), which keeps small x; from 9.02 on it rounds to 1.
  const Reduced reduced = reduce_exp(at_most(abs(x), 9.02) * 2.0, 127);
  const Float power = from_bits(reduced.count << 23);
  const Float t = fma(power, expm1_polynomial(reduced.r), power - 1.0);
  return copysign(t / (t + 2.0), x).value;
}

llvm::Value* emit_sigmoid(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) {
    const Float e = lanes.of(call_libm(builder, "exp", (-lanes.of(value)).value));
    return (1.0 / (1.0 + e)).value;
  }
  // e^x / (1 + e^x): denormal results for very negative x, and 1 long before the clamp for positive.
  const Float e = exp_in_range(at_most(at_least(lanes.of(value), -104.0), 30.0));
  return (e / (1.0 + e)).value;
}

llvm::Value* emit_erf(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "erf", value);
  const Float x = lanes.of(value), size = abs(x), square = x * x;
  const Float small = fma(x,
                          polynomial(square, {0.128379166, -0.376126051, 0.112831116, -0.0268196035, 0.0050815111,
                                              -0.000650517526}),
                          x);
  // 1 - 2^y; from 4 on it rounds to 1.
  const Float capped = at_most(size, 4.0);
  const Float y = capped * polynomial(capped, {-1.62819135, -0.916772306, -0.15250352, 0.0335964449, -0.0049186484,
                                               0.000380027283, -7.35680851e-6});
  const Float t = y + kRound;
  const Float p = exp2_polynomial(y - (t - kRound));
  const Float large = 1.0 - from_bits(bits(p) + (bits(t) << 23));
  return select(size > 0.8, copysign(large, x), small).value;  // NaN is in `small`
}

}  // namespace graft::cpu
