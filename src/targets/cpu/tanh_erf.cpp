// tanh, sigmoid, erf, erfc and the hyperbolic functions: activations, so branch-free and with one division at
// most. The polynomials are scripts/minimax.py's.
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
  if (!lanes.fused) {
    // x^2 is not to be had in two parts. Through double, since glibc's erfcf is off by up to 2.4 ulp.
    if (!lanes.is_float()) return call_libm(builder, "erfc", value);
    auto* wide = builder.CreateFPExt(value, widened(builder.getDoubleTy(), value->getType()));
    return builder.CreateFPTrunc(call_libm(builder, "erfc", wide), value->getType());
  }
  // exp(-x^2) (1/2 + s p(2 s - 1)) / (x + 1/2) with s = x / (x + middle). From 10.1 (27.3) on it is 0.
  const double middle = lanes.pick(3.0, 4.0);
  const Float x = lanes.of(value), size = at_most(abs(x), lanes.pick(10.1, 27.3));
  const Float square = size * size, square_low = fma(size, size, -square);
  const Float sum = size + 0.5;
  const Float sum_low = at_most(size, 0.5) - (sum - at_least(size, 0.5));
  // Both quotients by one division. What is wrong with the first goes into the exponent; the other's share of
  // the result is small.
  const Float other = size + middle, inverse = 1.0 / (sum * other);
  const Float quotient = other * inverse;
  const Float wrong = fma(-quotient, sum_low, fma(-quotient, sum, 1.0));
  const Float s = size * (sum * inverse);
  const Float p =
      s *
      polynomial(
          fma(s, 2.0, -1.0),
          {0.253008068, -0.388629168, 0.341066152, -0.211421132, 0.0921569094, -0.0238474905, 2.82263845e-5,
           0.00248875562, -0.000476635352, -0.000238915192},
          {0.2329951186255525,     -0.37261623546611505,    0.38799588756873471,     -0.31989883331403907,
           0.21885976727773951,    -0.12512693227949515,    0.058796566467174967,    -0.021629050927974219,
           0.0054313168713578308,  -0.00039934690877510841, -0.00035842638839023714, 0.00015916977705682781,
           -8.5480576130510539e-6, -1.585143887321176e-5,   4.6292471998473526e-6,   1.0810778334790889e-6,
           -7.8685098848803531e-7, -3.9293365825881959e-8,  1.1325134933632988e-7,   -2.7970606373818958e-9,
           -1.451670949955416e-8,  4.3470931818904197e-10,  1.1774692989284858e-9});
  const Reduced reduced = reduce_exp(-square, 2 * lanes.bias());
  const Float e = expm1_polynomial(reduced.r + (wrong - square_low));
  // Half of the quotient is exact, and all the rest is small beside it.
  const Float rest = fma(e, p + 0.5, p);
  const Float result = scaled(fma(quotient, rest, quotient * 0.5), reduced.n, 0, reduced.count);
  return select(x < 0.0, 2.0 - result, result).value;
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
