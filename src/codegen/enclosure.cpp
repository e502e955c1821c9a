#include "codegen/enclosure.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace graft::codegen {
namespace {

using ir::DType;

constexpr double infinity = std::numeric_limits<double>::infinity();

bool is_infinite(double x) { return x == infinity || x == -infinity; }
bool has_infinity(const Real& x) { return is_infinite(x.low) || is_infinite(x.high); }

/// The smallest interval around all of them; a NaN among them is NaN as a result.
template <class... X>
Real around(bool nan, X... each) {
  Real made{infinity, -infinity, nan};
  const auto add = [&](double x) {
    if (std::isnan(x)) {
      made.nan = true;
    } else {
      made.low = std::min(made.low, x);
      made.high = std::max(made.high, x);
    }
  };
  (add(each), ...);
  return made;
}

// --- what IEEE 754 fixes: the nearest number, so the ends' results are the results' ends

Real add(DType dtype, const Real& a, const Real& b) {
  if (!a.has_numbers() || !b.has_numbers()) return Real::only_nan();
  const double low = nearest(dtype, a.low + b.low), high = nearest(dtype, a.high + b.high);
  const bool nan = a.nan || b.nan;
  if (!has_infinity(a) || !has_infinity(b)) return {low, high, nan};
  if (a.is_point() && b.is_point()) return around(nan, low);
  return Real::anything();
}

Real neg(DType, const Real& x) { return {-x.high, -x.low, x.nan}; }

Real sub(DType dtype, const Real& a, const Real& b) { return add(dtype, a, neg(dtype, b)); }

Real mul(DType dtype, const Real& a, const Real& b) {
  if (!a.has_numbers() || !b.has_numbers()) return Real::only_nan();
  const bool nan = a.nan || b.nan;
  if (a.low == a.high && b.low == b.high) return around(nan, nearest(dtype, a.low * b.low));
  if ((has_infinity(a) && b.holds(0)) || (has_infinity(b) && a.holds(0))) return Real::anything();
  return around(nan, nearest(dtype, a.low * b.low), nearest(dtype, a.low * b.high),
                nearest(dtype, a.high * b.low), nearest(dtype, a.high * b.high));
}

Real div(DType dtype, const Real& a, const Real& b) {
  if (!a.has_numbers() || !b.has_numbers()) return Real::only_nan();
  const bool nan = a.nan || b.nan;
  if (b.holds(0)) {
    if (b.low != b.high) return Real::anything();
    if (a.low == 0 && a.high == 0) return Real::only_nan();
    return {-infinity, infinity, nan || a.holds(0)};  // by the sign of the zero
  }
  if (a.low == a.high && b.low == b.high) return around(nan, nearest(dtype, a.low / b.low));
  if (has_infinity(a) && has_infinity(b)) return Real::anything();
  return around(nan, nearest(dtype, a.low / b.low), nearest(dtype, a.low / b.high),
                nearest(dtype, a.high / b.low), nearest(dtype, a.high / b.high));
}

Real reciprocal(DType dtype, const Real& x) { return div(dtype, Real::exactly(1), x); }

Real abs(DType, const Real& x) {
  if (!x.has_numbers()) return x;
  const double low = std::abs(x.low), high = std::abs(x.high);
  return {x.holds(0) ? 0 : std::min(low, high), std::max(low, high), x.nan};
}

Real sign(DType, const Real& x) {
  const auto of = [](double v) { return static_cast<double>(v > 0) - static_cast<double>(v < 0); };
  if (!x.has_numbers()) return Real::exactly(0);
  return x.nan ? around(false, of(x.low), of(x.high), 0.0) : around(false, of(x.low), of(x.high));
}

/// A function that grows, where it is defined: from `from` to `to`.
template <class F>
Real growing(const Real& x, double from, double to, const F& f) {
  if (!x.has_numbers() || x.high < from || x.low > to) return Real::only_nan();
  return {f(std::max(x.low, from), false), f(std::min(x.high, to), true),
          x.nan || x.low < from || x.high > to};
}

template <double (*f)(double)>
Real exact_step(DType, const Real& x) {
  return growing(x, -infinity, infinity, [](double v, bool) { return f(v); });
}

Real sqrt(DType dtype, const Real& x) {
  return growing(x, 0, infinity, [&](double v, bool) { return nearest(dtype, std::sqrt(v)); });
}

/// 1 / sqrt(x), both rounded.
Real rsqrt(DType dtype, const Real& x) {
  const auto root = sqrt(dtype, x);
  if (!root.has_numbers()) return root;
  if (root.low == 0) return {-infinity, infinity, root.nan};
  return {nearest(dtype, 1 / root.high), nearest(dtype, 1 / root.low), root.nan};
}

Real maximum(DType, const Real& a, const Real& b) {
  if (!a.has_numbers() || !b.has_numbers()) return Real::only_nan();
  return {std::max(a.low, b.low), std::max(a.high, b.high), a.nan || b.nan};
}

Real minimum(DType, const Real& a, const Real& b) {
  if (!a.has_numbers() || !b.has_numbers()) return Real::only_nan();
  return {std::min(a.low, b.low), std::min(a.high, b.high), a.nan || b.nan};
}

// --- elementary functions

// Generated code promises 2 ulp, the C library about as much.
constexpr double allowed_ulps = 4;

/// A result y of the function at x, as far down or up as is allowed.
double widened(DType dtype, double x, double y, bool up) {
  // At the ends of its range a function has no error: exp(-inf) is 0, tanh(0) is 0.
  if ((x == 0 || is_infinite(x)) && (y == 0 || is_infinite(y))) return y;
  const bool is_float = dtype == DType::f32;
  if (is_infinite(y)) {
    if (is_float) return y;
    const double largest = std::copysign(std::numeric_limits<double>::max(), y);
    return (y > 0) == up ? y : largest;
  }
  const int digits = is_float ? 24 : 53, smallest = is_float ? -126 : -1022;
  const int exponent = y == 0 ? smallest : std::max(std::ilogb(y), smallest);
  const double slack = allowed_ulps * std::ldexp(1.0, exponent - digits + 1);
  return nearest(dtype, up ? y + slack : y - slack);
}

double sigmoid_of(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

struct Domain {
  double from = -infinity, to = infinity;
  double least = -infinity;  // of the results
};

template <double (*f)(double), Domain domain = Domain{}>
Real elementary(DType dtype, const Real& x) {
  if (!x.has_numbers() || x.high < domain.from || x.low > domain.to) return Real::only_nan();
  const double from = std::max(x.low, domain.from), to = std::min(x.high, domain.to);
  const double low = f(from), high = from == to ? low : f(to);
  return {std::max(widened(dtype, from, low, false), domain.least), widened(dtype, to, high, true),
          x.nan || x.low < domain.from || x.high > domain.to};
}

constexpr Domain everywhere_positive{.least = 0}, of_log{.from = 0}, of_log1p{.from = -1},
    of_asin{.from = -1, .to = 1};

double minus_acos(double x) { return -std::acos(x); }
double minus_erfc(double x) { return -std::erfc(x); }

Real acos(DType dtype, const Real& x) { return neg(dtype, elementary<minus_acos, of_asin>(dtype, x)); }
Real erfc(DType dtype, const Real& x) {
  auto made = neg(dtype, elementary<minus_erfc>(dtype, x));
  if (made.has_numbers()) made.low = std::max(made.low, 0.0);
  return made;
}
Real cosh(DType dtype, const Real& x) { return elementary<std::cosh>(dtype, abs(dtype, x)); }

/// sin and cos: never steeper than 1.
template <double (*f)(double)>
Real wave(DType dtype, const Real& x) {
  if (!x.has_numbers() || (x.low == x.high && is_infinite(x.low))) return Real::only_nan();
  const bool nan = x.nan || has_infinity(x);
  const double radius = x.low == x.high ? 0 : (x.high - x.low) / 2 + std::abs(x.high) * 0x1p-52;
  if (!(radius < 1) || has_infinity(x))
    return {widened(dtype, 1, -1, false), widened(dtype, 1, 1, true), nan};
  const double middle = x.low + (x.high - x.low) / 2, y = f(middle);
  if (radius == 0) return {widened(dtype, middle, y, false), widened(dtype, middle, y, true), nan};
  return {widened(dtype, 1, std::max(y - radius, -1.0), false),
          widened(dtype, 1, std::min(y + radius, 1.0), true), nan};
}

Real tan(DType dtype, const Real& x) {
  if (!x.has_numbers() || (x.low == x.high && is_infinite(x.low))) return Real::only_nan();
  if (has_infinity(x)) return Real::anything();
  const double low = std::tan(x.low), high = std::tan(x.high);
  // Less than a period, so that it has a pole inside exactly where it falls. Far out its ends are not known.
  if (x.low != x.high && (x.high - x.low > 3 || low > high || std::abs(x.low) > 1e8))
    return {-infinity, infinity, x.nan};
  return {widened(dtype, x.low, low, false), widened(dtype, x.high, high, true), x.nan};
}

bool is_integer(double x) { return std::trunc(x) == x; }

Real pow(DType dtype, const Real& x, const Real& y) {
  const bool one = x.is_point() && y.is_point();
  if (x.has_numbers() && y.has_numbers() && x.low == x.high && y.low == y.high && !one) {
    // NaN to the power of 0, and 1 to that of NaN, are 1.
    auto made = pow(dtype, Real::exactly(x.low), Real::exactly(y.low));
    return {std::min(made.low, 1.0), std::max(made.high, 1.0), true};
  }
  if (one) {
    if (x.low == 0 && y.low < 0) return {-infinity, infinity, false};  // by the sign of the zero
    const double z = std::pow(x.low, y.low);
    if (std::isnan(z)) return Real::only_nan();
    return {widened(dtype, x.low, z, false), widened(dtype, x.low, z, true), false};
  }
  if (!x.has_numbers() || !y.has_numbers())
    return (x.has_numbers() && !x.holds(1)) || (y.has_numbers() && !y.holds(0)) ? Real::only_nan()
                                                                                : Real::anything();
  const bool reaches_pole = x.low <= 0 && y.low < 0;
  const bool odd_power = y.is_point() && is_integer(y.low) && !is_integer(y.low / 2);
  if (reaches_pole || (x.low < 0 && !odd_power) || has_infinity(x) || has_infinity(y) || x.nan || y.nan)
    return Real::anything();
  // It grows or falls in each argument alone: the corners hold all of it.
  const auto corners = around(false, std::pow(x.low, y.low), std::pow(x.low, y.high), std::pow(x.high, y.low),
                              std::pow(x.high, y.high));
  return {widened(dtype, 1, corners.low, false), widened(dtype, 1, corners.high, true), false};
}

Real fmod(DType, const Real& a, const Real& b) {
  if (!a.has_numbers() || !b.has_numbers()) return Real::only_nan();
  if (a.is_point() && b.is_point()) return around(false, std::fmod(a.low, b.low));
  const double most = std::max(std::abs(b.low), std::abs(b.high));
  return {-most, most, true};
}

/// With the sign of the divisor.
Real remainder(DType dtype, const Real& a, const Real& b) {
  auto r = fmod(dtype, a, b);
  if (!a.is_point() || !b.is_point() || !r.has_numbers()) return r;
  if (r.low != 0 && (r.low < 0) != (b.low < 0)) r = Real::exactly(nearest(dtype, r.low + b.low));
  return r;
}

/// The sign of a zero or of what is no number is not known here.
Real copysign(DType, const Real& a, const Real& b) {
  if (!a.has_numbers()) return a;
  const auto size = abs(DType::f64, a);
  if (b.has_numbers() && !b.nan && b.low > 0) return size;
  if (b.has_numbers() && !b.nan && b.high < 0) return {-size.high, -size.low, size.nan};
  return {-size.high, size.high, size.nan};
}

// --- flags

constexpr Whole no{0, 0}, yes{1, 1}, either{0, 1};

Whole is_nan(const Real& x) { return !x.nan ? no : x.has_numbers() ? either : yes; }
Whole is_inf(const Real& x) {
  if (!x.has_numbers() || !has_infinity(x)) return no;
  return x.is_point() ? yes : either;
}

Whole lt(const Real& a, const Real& b) {
  if (!a.has_numbers() || !b.has_numbers() || a.low >= b.high) return no;
  return a.high < b.low && !a.nan && !b.nan ? yes : either;
}
Whole le(const Real& a, const Real& b) {
  if (!a.has_numbers() || !b.has_numbers() || a.low > b.high) return no;
  return a.high <= b.low && !a.nan && !b.nan ? yes : either;
}
Whole gt(const Real& a, const Real& b) { return lt(b, a); }
Whole ge(const Real& a, const Real& b) { return le(b, a); }
Whole eq(const Real& a, const Real& b) {
  if (!a.has_numbers() || !b.has_numbers() || a.high < b.low || b.high < a.low) return no;
  return a.is_point() && b.is_point() ? yes : either;
}
Whole ne(const Real& a, const Real& b) {
  const auto same = eq(a, b);
  return {1 - same.high, 1 - same.low};
}

}  // namespace

Real Real::exactly(double x) { return x == x ? Real{x, x, false} : only_nan(); }
Real Real::anything() { return {-infinity, infinity, true}; }
Real Real::only_nan() { return {infinity, -infinity, true}; }

namespace {
/// Of a binary format with so many digits: tests of powers of two are exact, so is what is scaled by them.
double nearest_of(double x, int digits, int smallest_exponent, double first_infinite) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), smallest_exponent) - digits + 1;
  const double made = std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
  return std::abs(made) >= first_infinite ? std::copysign(infinity, x) : made;
}
}  // namespace

double nearest(DType dtype, double x) {
  switch (dtype) {
    case DType::f64:
      return x;
    case DType::f16:
      return nearest_of(x, 11, -14, 65536);
    case DType::bf16:
      return nearest_of(x, 8, -126, 0x1p128);
    default:
      return static_cast<double>(static_cast<float>(x));
  }
}

Real hull(const Real& a, const Real& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high), a.nan || b.nan};
}

Real rounded(DType dtype, const Real& x) {
  const double low = nearest(dtype, x.low);
  return {low, x.low == x.high ? low : nearest(dtype, x.high), x.nan};
}

Real to_real(DType dtype, const Whole& x) {
  const auto of = [&](int64_t v) {  // rounded once
    return dtype == DType::f64 ? static_cast<double>(v) : static_cast<double>(static_cast<float>(v));
  };
  return {of(x.low), of(x.high), false};
}

Real fused(DType dtype, const Real& a, const Real& b, const Real& c) {
  const auto twice = add(dtype, mul(dtype, a, b), c);
  if (!a.has_numbers() || !b.has_numbers() || !c.has_numbers()) return twice;
  const bool nan = a.nan || b.nan || c.nan;
  const auto once = [&](double x, double y, double z) {
    return dtype == DType::f64 ? std::fma(x, y, z)
                               : static_cast<double>(std::fma(static_cast<float>(x), static_cast<float>(y),
                                                              static_cast<float>(z)));
  };
  if (a.low == a.high && b.low == b.high && c.low == c.high)
    return hull(twice, around(nan, once(a.low, b.low, c.low)));
  if (has_infinity(a) || has_infinity(b) || has_infinity(c)) return Real::anything();
  return hull(twice,
              around(nan, once(a.low, b.low, c.low), once(a.low, b.high, c.low), once(a.high, b.low, c.low),
                     once(a.high, b.high, c.low), once(a.low, b.low, c.high), once(a.low, b.high, c.high),
                     once(a.high, b.low, c.high), once(a.high, b.high, c.high)));
}

RealUnary real_unary(Op op) {
  switch (op) {
    case Op::neg:
      return neg;
    case Op::abs:
      return abs;
    case Op::sign:
      return sign;
    case Op::sqrt:
      return sqrt;
    case Op::rsqrt:
      return rsqrt;
    case Op::reciprocal:
      return reciprocal;
    case Op::exp:
      return elementary<std::exp, everywhere_positive>;
    case Op::exp2:
      return elementary<std::exp2, everywhere_positive>;
    case Op::expm1:
      return elementary<std::expm1>;
    case Op::log:
      return elementary<std::log, of_log>;
    case Op::log2:
      return elementary<std::log2, of_log>;
    case Op::log10:
      return elementary<std::log10, of_log>;
    case Op::log1p:
      return elementary<std::log1p, of_log1p>;
    case Op::sin:
      return wave<std::sin>;
    case Op::cos:
      return wave<std::cos>;
    case Op::tan:
      return tan;
    case Op::asin:
      return elementary<std::asin, of_asin>;
    case Op::acos:
      return acos;
    case Op::atan:
      return elementary<std::atan>;
    case Op::sinh:
      return elementary<std::sinh>;
    case Op::cosh:
      return cosh;
    case Op::tanh:
      return elementary<std::tanh>;
    case Op::sigmoid:
      return elementary<sigmoid_of, everywhere_positive>;
    case Op::erf:
      return elementary<std::erf>;
    case Op::erfc:
      return erfc;
    case Op::floor:
      return exact_step<std::floor>;
    case Op::ceil:
      return exact_step<std::ceil>;
    case Op::round:
      return exact_step<std::nearbyint>;
    case Op::trunc:
      return exact_step<std::trunc>;
    default:
      return nullptr;
  }
}

RealBinary real_binary(Op op) {
  switch (op) {
    case Op::add:
      return add;
    case Op::sub:
      return sub;
    case Op::mul:
      return mul;
    case Op::div:
      return div;
    case Op::pow:
      return pow;
    case Op::maximum:
      return maximum;
    case Op::minimum:
      return minimum;
    case Op::fmod:
      return fmod;
    case Op::remainder:
      return remainder;
    case Op::copysign:
      return copysign;
    default:
      return nullptr;
  }
}

RealTest real_test(Op op) { return op == Op::is_nan ? is_nan : op == Op::is_inf ? is_inf : nullptr; }

RealComparison real_comparison(Op op) {
  switch (op) {
    case Op::eq:
      return eq;
    case Op::ne:
      return ne;
    case Op::lt:
      return lt;
    case Op::le:
      return le;
    case Op::gt:
      return gt;
    case Op::ge:
      return ge;
    default:
      return nullptr;
  }
}

}  // namespace graft::codegen
