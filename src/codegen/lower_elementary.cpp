// Elementary functions that are made of others: of one number or two, as instructions.
#include <cmath>
#include <limits>
#include <numbers>

#include "codegen/lower_math.h"

namespace graft::codegen {
namespace {

using ir::DType;
using ir::Node;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The largest finite number.
double largest(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 0x1.fep127;
    case DType::f32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

int nan_to_num(Lowering& l, const Node& n, const Place& p) {
  const Math m{l, out(n)};
  const auto dtype = n.output().type().dtype;
  const int x = l.stored_argument(n, "self", p, out(n));
  if (!ir::is_floating(dtype)) return x;
  const auto number = [&](const char* name, double standard) {
    return l.convert(m(scalar(n, name, standard)), dtype);
  };
  const int low = m.select(m.is(Op::eq, x, m(-infinity)), number("neginf", -largest(dtype)), x);
  const int bounded = m.select(m.is(Op::eq, x, m(infinity)), number("posinf", largest(dtype)), low);
  return m.select(m.is(Op::is_nan, x), number("nan", 0), bounded);
}

/// x * f(y), and 0 where x is, unless y is no number.
Lower times_logarithm(Op logarithm) {
  return [logarithm](Lowering& l, const Node& n, const Place& p) {
    const Math m{l, out(n)};
    const int x = rounded_argument(l, n, "self", p), y = rounded_argument(l, n, "other", p);
    const int product = m.select(m.is(Op::eq, x, m(0)), m(0), m.mul(x, m.of(logarithm, y)));
    return m.select(m.is(Op::is_nan, y), y, product);
  };
}

int entropy(const Math& m, const Node&, int x) {
  const int term = m.neg(m.mul(x, m.of(Op::log, x)));
  const int edge = m.select(m.is(Op::eq, x, m(0)), m(0), m(-infinity));
  return m.select(m.is(Op::is_nan, x), x, m.select(m.is(Op::gt, x, m(0)), term, edge));
}

/// The logarithm of the sum of two powers: the larger number and what the other adds.
int joined_powers(const Math& m, int a, int b, const std::function<int(int distance)>& added) {
  const int sum = m.add(m.max(a, b), added(m.of(Op::abs, m.sub(a, b))));
  // Two infinities of one sign have no distance.
  return m.select(m.both(m.is(Op::is_inf, a), m.is(Op::eq, a, b)), a, sum);
}

int log_add_exp(const Math& m, int a, int b) {
  return joined_powers(m, a, b, [&](int d) { return m.of(Op::log1p, m.of(Op::exp, m.neg(d))); });
}

int log_add_exp2(const Math& m, int a, int b) {
  return joined_powers(m, a, b, [&](int d) {
    return m.mul(m.of(Op::log1p, m.of(Op::exp2, m.neg(d))), m(1 / std::numbers::ln2));
  });
}

/// Also of -0, and of what is no number.
int is_negative(const Math& m, int x) {
  return m.is(Op::lt, m.l.emit(Op::copysign, m.dtype, {m(1), x}), m(0));
}

int copysign(Lowering& l, const Node& n, const Place& p) {
  return l.emit(Op::copysign, out(n), {l.argument(n, "self", p, out(n)), l.argument(n, "other", p, out(n))});
}

/// The type of 2 to the power of the argument: torch's usual one where that is whole.
DType dtype_of_power(const Node& n) {
  const auto dtype = ir::value_of(n, "other")->type().dtype;
  return ir::is_floating(dtype) ? dtype : DType::f32;
}
/// The usual type may be another one, which shows unless the result is as wide as that may be.
bool ldexp_applies(const Node& n) {
  return floats(n) &&
         (n.output().type().dtype != DType::f64 || ir::is_floating(ir::value_of(n, "other")->type().dtype));
}
int ldexp(Lowering& l, const Node& n, const Place& p) {
  const auto dtype = dtype_of_power(n), held = in_register(dtype);
  const int power = l.emit(Op::pow, held, {l.constant(held, 2), l.stored_argument(n, "other", p, held)});
  return l.emit(Op::mul, out(n), {l.argument(n, "self", p, out(n)), l.cast(l.convert(power, dtype), out(n))});
}

int signbit(Lowering& l, const Node& n, const Place& p) {
  const auto dtype = in_register(ir::value_of(n, "self")->type().dtype);
  const int x = l.argument(n, "self", p, dtype);
  if (dtype == DType::boolean) return l.integer(dtype, 0);
  if (!ir::is_floating(dtype)) return l.emit(Op::lt, DType::boolean, {x, l.integer(dtype, 0)});
  return is_negative(Math{l, dtype}, x);
}

int angle(const Math& m, const Node&, int x) {
  return m.select(m.is(Op::is_nan, x), x, m.select(m.is(Op::lt, x, m(0)), m(std::numbers::pi), m(0)));
}

/// To so many decimals; the scale is a number of the result's type.
int round_to_decimals(Lowering& l, const Node& n, const Place& p) {
  const Math m{l, out(n)};
  const int x = l.stored_argument(n, "self", p, out(n));
  const auto decimals = ir::int_of(n, "decimals").value_or(0);
  if (decimals == 0) return m.of(Op::round, x);
  const double power = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  const int scale = l.convert(m(power), n.output().type().dtype);
  return decimals > 0 ? m.div(m.of(Op::round, m.mul(x, scale)), scale)
                      : m.mul(m.of(Op::round, m.div(x, scale)), scale);
}

int atan2(const Math& m, int y, int x) {
  const int ax = m.of(Op::abs, x), ay = m.of(Op::abs, y);
  const int big = m.max(ax, ay), small = m.min(ax, ay);
  // Two zeros and two infinities have no quotient: the angle is that of 0 and of 1.
  const int same = m.select(m.is(Op::eq, big, m(0)), m(0), m(1));
  const int quotient = m.select(m.is(Op::eq, big, small), same, m.div(small, big));
  int angle = m.of(Op::atan, quotient);
  angle = m.select(m.is(Op::gt, ay, ax), m.sub(m(std::numbers::pi / 2), angle), angle);
  angle = m.select(is_negative(m, x), m.sub(m(std::numbers::pi), angle), angle);
  return m.select(is_negative(m, y), m.neg(angle), angle);
}

/// A square may overflow where the result does not: float32 is computed in float64, that by the quotient.
int hypot(Lowering& l, const Node& n, const Place& p) {
  const Math m{l, DType::f64};
  const int a = l.argument(n, "self", p, DType::f64), b = l.argument(n, "other", p, DType::f64);
  const int ax = m.of(Op::abs, a), ay = m.of(Op::abs, b), big = m.max(ax, ay);
  int length = -1;
  if (out(n) == DType::f64) {
    const int q = m.div(m.min(ax, ay), big);
    const int scaled = m.mul(big, m.of(Op::sqrt, m.add(m(1), m.mul(q, q))));
    length = m.select(m.is(Op::eq, big, m(0)), big, scaled);
  } else {
    length = m.of(Op::sqrt, m.add(m.mul(a, a), m.mul(b, b)));
  }
  const int endless = l.emit(Op::logical_or, DType::boolean, {m.is(Op::is_inf, a), m.is(Op::is_inf, b)});
  return l.cast(m.select(endless, m(infinity), length), out(n));
}

// Above this a number's square plus or minus one is its square, in all types.
constexpr double far = 0x1p28;

/// Of the magnitude: these functions are odd, and so is the result, to the bit.
int odd(const Math& m, int x, const std::function<int(int magnitude)>& f) {
  const int made = f(m.of(Op::abs, x));
  return m.select(m.is(Op::lt, x, m(0)), m.neg(made), made);
}

int asinh(const Math& m, const Node&, int x) {
  return odd(m, x, [&](int a) {
    const int square = m.mul(a, a);
    const int root = m.of(Op::sqrt, m.add(m(1), square));
    const int near = m.of(Op::log1p, m.add(a, m.div(square, m.add(m(1), root))));
    return m.select(m.is(Op::gt, a, m(far)), m.add(m.of(Op::log, a), m(std::numbers::ln2)), near);
  });
}

int acosh(const Math& m, const Node&, int x) {
  const int t = m.sub(x, m(1));
  const int near = m.of(Op::log1p, m.add(t, m.of(Op::sqrt, m.mul(t, m.add(t, m(2))))));
  const int real = m.select(m.is(Op::gt, x, m(far)), m.add(m.of(Op::log, x), m(std::numbers::ln2)), near);
  return m.select(m.is(Op::lt, x, m(1)), m(std::numeric_limits<double>::quiet_NaN()), real);
}

int atanh(const Math& m, const Node&, int x) {
  return odd(m, x, [&](int a) { return m.mul(m(0.5), m.of(Op::log1p, m.div(m.add(a, a), m.sub(m(1), a)))); });
}

int sinc(const Math& m, const Node&, int x) {
  const int angle = m.mul(x, m(std::numbers::pi));
  return m.select(m.is(Op::eq, x, m(0)), m(1), m.div(m.of(Op::sin, angle), angle));
}

int heaviside(Lowering& l, const Node& n, const Place& p) {
  const int x = l.stored_argument(n, "self", p, out(n)), zero = l.integer(out(n), 0);
  const int step = l.cast(l.emit(Op::gt, DType::boolean, {x, zero}), out(n));
  return l.emit(Op::select, out(n),
                {l.emit(Op::eq, DType::boolean, {x, zero}), l.argument(n, "values", p, out(n)), step});
}

/// The other one where one is no number.
Lower ignoring_nan(Op op) {
  return [op](Lowering& l, const Node& n, const Place& p) {
    const Math m{l, out(n)};
    const int a = l.argument(n, "self", p, out(n)), b = l.argument(n, "other", p, out(n));
    const int best = l.emit(op, out(n), {a, b});
    if (!ir::is_floating(out(n))) return best;
    return m.select(m.is(Op::is_nan, a), b, m.select(m.is(Op::is_nan, b), a, best));
  };
}

using OfTwo = std::function<int(const Math&, int, int)>;
Lower of_two(const OfTwo& f) {
  return [f](Lowering& l, const Node& n, const Place& p) {
    return f(Math{l, out(n)}, l.stored_argument(n, "self", p, out(n)),
             l.stored_argument(n, "other", p, out(n)));
  };
}

Lower scaled_by(double factor) {
  return formula([factor](const Math& m, const Node&, int x) { return m.mul(x, m(factor)); });
}

/// Of a number to the power of a tensor. That of 1 is 1 whatever the tensor.
int power_of_number(Lowering& l, const Node& n, const Place& p) {
  if (scalar(n, "self", 0) == 1) return l.constant(out(n), 1);
  return l.emit(Op::pow, out(n), {rounded_argument(l, n, "self", p), l.argument(n, "exponent", p, out(n))});
}

Lower is_infinity(double which) {
  return [which](Lowering& l, const Node& n, const Place& p) {
    const auto dtype = in_register(ir::value_of(n, "self")->type().dtype);
    return l.emit(Op::eq, DType::boolean, {l.stored_argument(n, "self", p, dtype), l.constant(dtype, which)});
  };
}

}  // namespace

void add_elementary(LowerTable& table) {
  const auto no_flags = [](const Node& n) { return n.output().type().dtype != DType::boolean; };
  const auto of_floats = [](const Node& n) { return ir::is_floating(ir::value_of(n, "self")->type().dtype); };
  table["aten::sgn"] = {stepped(Op::sign), no_flags};
  table["aten::frac"] = {
      stepped_formula([](const Math& m, const Node&, int x) { return m.sub(x, m.of(Op::trunc, x)); }),
      floats};
  table["aten::nan_to_num"] = {nan_to_num};
  for (const char* kind : {".Tensor", ".Scalar_Self", ".Scalar_Other"})
    table["aten::xlogy" + std::string(kind)] = {times_logarithm(Op::log), floats};
  for (const char* kind : {"", ".self_scalar", ".other_scalar"})
    table["aten::special_xlog1py" + std::string(kind)] = {times_logarithm(Op::log1p), floats};
  table["aten::special_entr"] = {formula(entropy), floats};
  table["aten::logaddexp"] = {of_two(log_add_exp), floats};
  table["aten::logaddexp2"] = {of_two(log_add_exp2), floats};
  table["aten::atan2"] = {of_two(atan2), floats};
  table["aten::hypot"] = {hypot, floats};
  table["aten::copysign.Tensor"] = {copysign, floats};
  table["aten::copysign.Scalar"] = {copysign, floats};
  table["aten::ldexp.Tensor"] = {ldexp, ldexp_applies};
  table["aten::signbit"] = {signbit};
  table["aten::angle"] = {formula(angle), floats};
  table["aten::round.decimals"] = {round_to_decimals, floats};
  table["aten::asinh"] = {formula(asinh), floats};
  table["aten::acosh"] = {formula(acosh), floats};
  table["aten::atanh"] = {formula(atanh), floats};
  table["aten::sinc"] = {formula(sinc), floats};
  table["aten::deg2rad"] = {scaled_by(std::numbers::pi / 180), floats};
  table["aten::rad2deg"] = {scaled_by(180 / std::numbers::pi), floats};
  table["aten::heaviside"] = {heaviside};
  table["aten::fmax"] = {ignoring_nan(Op::maximum)};
  table["aten::fmin"] = {ignoring_nan(Op::minimum)};
  table["aten::pow.Scalar"] = {power_of_number, floats};
  table["aten::isposinf"] = {is_infinity(infinity), of_floats};
  table["aten::isneginf"] = {is_infinity(-infinity), of_floats};
}

}  // namespace graft::codegen
