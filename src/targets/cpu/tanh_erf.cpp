// tanh, sigmoid, erf and the hyperbolic functions: activations, so branch-free and with one division at most.
// The polynomials are scripts/minimax.py's.
#include "targets/cpu/exp_parts.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {

llvm::Value* emit_tanh(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "tanh", value);
  const Float x = lanes.of(value);
  const Float square = x * x;
  const Float small =
      fma(x * square,
          polynomial(square, {-0.333333164, 0.133325458, -0.0538478717, 0.0210527703, -0.00624684803},
                     {-0.33333333333332277, 0.13333333333163583, -0.053968253873556714, 0.02186948591424617,
                      -0.008863193685657085, 0.0035917130453450383, -0.0014531835753087037,
                      0.0005790376298366108, -0.00021013841782431495, 5.090696392800342e-05}),
          x);
  // 1 - 2 / (exp(2 |x|) + 1); from 9.02 (19.07) on it rounds to 1.
  const Float size = at_most(abs(x), lanes.pick(9.02, 19.07));
  const Reduced reduced = reduce_exp(size * 2.0, 0);
  const Float e = from_bits(bits(exp_polynomial(reduced.r)) + (reduced.count << lanes.fraction_bits()));
  const Float large = 1.0 - 2.0 / (e + 1.0);
  return copysign(select(size > 0.55, large, small), x).value;  // NaN is in `small`; -0 is not any more
}

llvm::Value* emit_sigmoid(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) {
    // The smaller of e^x and e^-x, which never overflows: far below zero the result is a denormal, not 0.
    const Float x = lanes.of(value);
    const Float e = lanes.of(call_libm(builder, "exp", (-abs(x)).value));
    return (select(x < 0.0, e, 1.0) / (1.0 + e)).value;
  }
  // e^x / (1 + e^x) = e^r / (2^-n + e^r), with at most 2^64 (2^512) in the denominator: what 2^-n has more
  // comes last, where it makes denormals. Both sides of the fraction are taken 3/2 times. Just below a power
  // of two, where the last place is smallest beside the quotient, they would be just above one, where it is
  // largest; so their mantissas are 1.4 to 1.95, and a third of an ulp is saved.
  constexpr double kShare = 1.5;
  const int up = lanes.fraction_bits();
  const double zero = lanes.shifter() + lanes.bias(), most = lanes.pick(64, 512);
  const auto [high, low] = ln2_parts(lanes);
  const Float x = at_most(at_least(lanes.of(value), lanes.pick(-104.0, -746.0)), lanes.pick(30.0, 40.0));
  const Float t = fma(x, -kLog2e, zero);
  const Float n = zero - t;
  const Float r = fma(n, -low, fma(n, -high, x));
  const Float q =
      polynomial(r, {0.749999881, 0.249997839, 0.0625030175, 0.0125528127, 0.00206998992},
                 {0.7500000000000016, 0.24999999999999617, 0.06249999999979488, 0.012500000000242257,
                  0.0020833333415554056, 0.0002976190425889969, 3.720223952345592e-05, 4.133638019634289e-06,
                  4.144542090887666e-07, 3.749996469148625e-08});
  const Float p = fma(r, fma(r, q, kShare), kShare);
  const Int capped = bits(at_most(t, zero + most));
  const Float rest = from_bits(((capped - bits(t)) << up) + lanes.bits_of(1.0));
  return (p / fma(from_bits(capped << up), kShare, p) * rest).value;
}

llvm::Value* emit_erf(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "erf", value);
  const Float x = lanes.of(value), size = abs(x);
  const Float small_factor = polynomial(
      x * x, {0.128379166, -0.376126051, 0.112831131, -0.0268197544, 0.00508193439, -0.000650873582},
      {0.1283791670955126, -0.3761263890318375, 0.11283791670954828, -0.02686617064506706,
       0.00522397762472185, -0.0008548326975230949, 0.00012055330904795874, -1.4925590242324718e-05,
       1.6460919106161253e-06, -1.6349442592417788e-07, 1.4653878452757925e-08, -1.1349903151616167e-09,
       5.918132834688352e-11});
  const Float small = fma(x, small_factor, x);
  // 1 - 2^y; from 4 (6) on it rounds to 1.
  const Float capped = at_most(size, lanes.pick(4.0, 6.0));
  const Float y =
      capped * polynomial(capped,
                          {-1.62819135, -0.916772306, -0.152503505, 0.0335964002, -0.00491860369,
                           0.000380011625, -7.35596677e-6},
                          {-1.627907083062377,     -0.918447555185947,     -0.1482729995127958,
                           0.027608470160817605,   0.0002728684723164226,  -0.0023947438458615045,
                           0.0007778982052391059,  4.440030502921831e-05,  -0.00016605077138058655,
                           9.54568508365016e-05,   -3.523944026450121e-05, 9.57344616945404e-06,
                           -1.956276709011486e-06, 2.9013670492234417e-07, -2.6893376903035773e-08,
                           3.4012835791808057e-10, 3.45251557348616e-10,   -6.055301437557467e-11,
                           5.4380441471584614e-12, -2.713652551960654e-13, 5.994706607689691e-15});
  const Float t = y + lanes.shifter();
  const Float p = exp2_polynomial(y - (t - lanes.shifter()));
  const Float large = 1.0 - from_bits(bits(p) + (bits(t) << lanes.fraction_bits()));
  return select(size > lanes.pick(0.8, 1.0), copysign(large, x), small).value;  // NaN is in `small`
}

llvm::Value* emit_erfc(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (!lanes.is_float()) return call_libm(builder, "erfc", value);
  // glibc's erfcf is off by up to 2.4 ulp, and nothing hot uses this one.
  auto* wide = builder.CreateFPExt(value, widened(builder.getDoubleTy(), value->getType()));
  return builder.CreateFPTrunc(call_libm(builder, "erfc", wide), value->getType());
}

llvm::Value* emit_sinh(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "sinh", value);
  const Float x = lanes.of(value), size = abs(x), square = x * x;
  const Float small = fma(
      x * square,
      polynomial(square, {0.166666672, 0.00833331048, 0.000198428941, 2.78223024e-6},
                 {0.16666666666666669, 0.008333333333333148, 0.00019841269841431978, 2.7557319157036718e-06,
                  2.505212314252915e-08, 1.6057259300682337e-10, 7.758763456756006e-13}),
      x);
  const Float e = exp_in_range(at_most(size, lanes.pick(90.0, 711.0)), -1);
  return select(size > 1.0, copysign(e - 0.25 / e, x), small).value;  // NaN is in `small`
}

llvm::Value* emit_cosh(llvm::IRBuilderBase& builder, llvm::Value* value) {
  Lanes lanes(builder, value->getType());
  if (lanes.by_library()) return call_libm(builder, "cosh", value);
  const Float e = exp_in_range(at_most(abs(lanes.of(value)), lanes.pick(90.0, 711.0)), -1);
  return (e + 0.25 / e).value;
}

}  // namespace graft::cpu
