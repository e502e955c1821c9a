#include "codegen/totals.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace graft::codegen {
namespace {

using ir::DType;

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Format {
  double unit;      // half an ulp of 1, and more than what is lost by computing in double here
  double smallest;  // what may be lost below the normal numbers
  double largest;
};
Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {0x1p-51, 0, std::numeric_limits<double>::max()};
    case DType::f16:
      return {0x1.04p-11, 0x1p-24, 65504};
    case DType::bf16:
      return {0x1.04p-8, 0x1p-133, 0x1.fep127};
    default:
      return {0x1.04p-24, 0, std::numeric_limits<float>::max()};
  }
}

Real start_of(Op op) {
  switch (op) {
    case Op::reduce_prod:
      return Real::exactly(1);
    case Op::reduce_max:
      return Real::exactly(-infinity);
    case Op::reduce_min:
      return Real::exactly(infinity);
    default:
      return Real::exactly(0);
  }
}

Whole whole_start_of(Op op, DType dtype) {
  switch (op) {
    case Op::reduce_prod:
    case Op::reduce_all:
      return Whole::exactly(1);
    case Op::reduce_max:
      return Whole::exactly(Whole::anything(dtype).low);
    case Op::reduce_min:
      return Whole::exactly(Whole::anything(dtype).high);
    default:
      return Whole::exactly(0);
  }
}

/// x * x * ..., by the low bits.
int64_t power(int64_t x, int64_t count) {
  uint64_t made = 1;
  for (auto factor = static_cast<uint64_t>(x); count > 0; count /= 2, factor *= factor)
    if (count % 2) made *= factor;
  return static_cast<int64_t>(made);
}

}  // namespace

RealTotal::RealTotal(Op op, DType dtype, double deepest)
    : op_(op), dtype_(dtype), deepest_(deepest), value_(start_of(op)) {}

void RealTotal::add(const Real& x, int64_t count) {
  nan_ |= x.nan;
  if (!x.has_numbers()) {
    only_nan_ = true;
    return;
  }
  const auto times = static_cast<double>(count);
  switch (op_) {
    case Op::reduce_max:
      value_ = {std::max(value_.low, x.low), std::max(value_.high, x.high), false};
      break;
    case Op::reduce_min:
      value_ = {std::min(value_.low, x.low), std::min(value_.high, x.high), false};
      break;
    case Op::reduce_sum:
      if (x.low == 0 && x.high == 0) break;
      low_.add(times * x.low);
      high_.add(times * x.high);
      positive_ += times * std::max(x.high, 0.0);
      negative_ += times * std::min(x.low, 0.0);
      has_infinity_ |= x.low == infinity;
      has_minus_ |= x.high == -infinity;
      inexact_ += times;
      break;
    default: {
      if (x.is_point() && (x.low == 1 || (x.low == -1 && count % 2 == 0))) break;
      const double most = std::max(std::abs(x.low), std::abs(x.high));
      const double least = x.holds(0) ? 0 : std::min(std::abs(x.low), std::abs(x.high));
      has_zero_ |= x.low == 0 && x.high == 0;
      grows_ += times * std::max(std::log2(most), 0.0);
      if (most > 0) shrinks_ += times * std::min(std::log2(least), 0.0);
      inexact_ += times;
      const auto multiply = real_binary(Op::mul);
      for (int64_t i = 0; i < std::min<int64_t>(count, 64); ++i) value_ = multiply(DType::f64, value_, x);
      if (count > 64) shrinks_ = -infinity;
    }
  }
}

void RealTotal::Sum::add(double x) {
  const double next = sum + x;
  if (std::isfinite(next)) lost += std::abs(sum) >= std::abs(x) ? (sum - next) + x : (x - next) + sum;
  sum = next;
}

double RealTotal::Sum::value() const { return std::isfinite(sum) ? sum + lost : sum; }

Real RealTotal::sum() const {
  const auto format = format_of(dtype_);
  if (has_infinity_ && has_minus_) return Real::only_nan();
  // Some order may have infinity on its way, and with both of them NaN.
  const bool up = positive_ > 0.999 * format.largest, down = -negative_ > 0.999 * format.largest;
  if (up && down) return Real::anything();
  if (has_infinity_) return {infinity, infinity, nan_};
  if (has_minus_) return {-infinity, -infinity, nan_};
  const double steps = std::min(inexact_ - 1, deepest_);
  const double error =
      inexact_ > 1 ? steps * format.unit * (positive_ - negative_) + inexact_ * format.smallest : 0;
  const double low = low_.value(), high = high_.value();
  if (up) return {std::isfinite(error) ? nearest(dtype_, low - error) : negative_, infinity, nan_};
  if (down) return {-infinity, std::isfinite(error) ? nearest(dtype_, high + error) : positive_, nan_};
  return {nearest(dtype_, low - error), nearest(dtype_, high + error), nan_};
}

Real RealTotal::product() const {
  const double largest = dtype_ == DType::f32 ? 126 : 1000;
  if (!(grows_ < largest)) return Real::anything();
  if (has_zero_) return {0, 0, nan_};
  if (!(shrinks_ > -largest)) {
    const double most = std::ldexp(1.0, static_cast<int>(grows_) + 2);
    return {-most, most, nan_};
  }
  const double error =
      inexact_ * format_of(dtype_).unit * std::max(std::abs(value_.low), std::abs(value_.high));
  if (inexact_ <= 1) return {value_.low, value_.high, nan_};
  return {nearest(dtype_, value_.low - error), nearest(dtype_, value_.high + error), nan_};
}

Real RealTotal::result() const {
  if (only_nan_) return Real::only_nan();
  if (op_ == Op::reduce_sum) return sum();
  if (op_ == Op::reduce_prod) return product();
  return {value_.low, value_.high, nan_};
}

WholeTotal::WholeTotal(Op op, DType dtype) : op_(op), dtype_(dtype), value_(whole_start_of(op, dtype)) {}

void WholeTotal::add(const Whole& x, int64_t count) {
  const auto step = [&](Op op, const Whole& term) { value_ = whole_binary(op)(dtype_, value_, term); };
  switch (op_) {
    case Op::reduce_sum:
      step(Op::add, whole_binary(Op::mul)(dtype_, x, Whole::exactly(wrapped(dtype_, count))));
      break;
    case Op::reduce_prod:
      step(Op::mul, x.is_point() ? Whole::exactly(wrapped(dtype_, power(x.low, count)))
                    : count == 1 ? x
                                 : Whole::anything(dtype_));
      break;
    case Op::reduce_max:
    case Op::reduce_any:
      step(Op::maximum, x);
      break;
    default:
      step(Op::minimum, x);
  }
}

void BestPlace::add(const Real& x, const Whole& place) {
  all_.push_back({largest_ ? x : real_unary(Op::neg)(DType::f64, x), {}, place});
}

void BestPlace::add(const Whole& x, const Whole& place) {
  // Turned over by ~, which has no overflow.
  all_.push_back({Real::exactly(0), largest_ ? x : Whole{~x.high, ~x.low}, place});
}

Whole BestPlace::result() const {
  // A NaN that is one for certain ends the search at its place.
  int64_t first_nan = std::numeric_limits<int64_t>::max();
  bool certain = false, possible = false;
  for (const auto& each : all_) {
    if (!each.value.nan) continue;
    possible = true;
    if (!each.value.has_numbers()) certain = true, first_nan = std::min(first_nan, each.place.high);
  }
  if (!possible) return best_of_numbers();
  int64_t low = first_nan;
  for (const auto& each : all_)
    if (each.value.nan) low = std::min(low, each.place.low);
  if (certain) return {low, first_nan};
  return hull(best_of_numbers(),
              Whole{low, std::max_element(all_.begin(), all_.end(), [](const auto& a, const auto& b) {
                           return (a.value.nan ? a.place.high : -1) < (b.value.nan ? b.place.high : -1);
                         })->place.high});
}

Whole BestPlace::best_of_numbers() const {
  double bound = -infinity;
  int64_t exact_bound = std::numeric_limits<int64_t>::min();
  for (const auto& each : all_) {
    bound = std::max(bound, each.value.low);
    exact_bound = std::max(exact_bound, each.exact.low);
  }
  Whole made{std::numeric_limits<int64_t>::max(), -1};
  bool points = true;
  for (const auto& each : all_) {
    if (each.value.high < bound || each.exact.high < exact_bound) continue;
    points &= each.value.is_point() && each.exact.is_point() && each.place.is_point();
    made = {std::min(made.low, each.place.low), std::max(made.high, each.place.high)};
  }
  return points ? Whole::exactly(made.low) : made;
}

}  // namespace graft::codegen
