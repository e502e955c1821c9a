// What the cases of op_cases.h are run on: dtypes, layouts and tensors of them.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "op_cases.h"

namespace graft::op_cases {

inline constexpr at::ScalarType dtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong,
                                            at::kInt,   at::kShort,  at::kChar,     at::kByte, at::kBool};

inline Types kind_of(at::ScalarType dtype) {
  return at::isFloatingType(dtype) ? floats : dtype == at::kBool ? flags : ints;
}

inline bool half(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

struct Layout {
  enum class How : uint8_t { contiguous, transposed, stepped, expanded, special } how;
  std::vector<int64_t> sizes;
  const char* name;
  enum class Run : uint8_t {
    always,
    often,
    seldom
  } run = Run::often;  ///< for every dtype, most, few: they cost time
};
using Run = Layout::Run;
using How = Layout::How;

inline const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {How::contiguous, {4, 17}, "contiguous", Run::always},
      {How::transposed, {5, 6}, "transposed", Run::always},
      {How::stepped, {3, 9}, "stepped"},
      {How::expanded, {4, 17}, "expanded"},
      {How::contiguous, {0, 5}, "empty"},
      {How::contiguous, {}, "0-d"},
      {How::contiguous, {1}, "one"},
      {How::contiguous, {3, 2}, "three"},
      {How::contiguous, {63}, "sixty-three"},
      {How::transposed, {2, 65, 3}, "transposed 3-d"},
      {How::special, {}, "special values", Run::always},
      {How::contiguous, {130, 517}, "large", Run::seldom},
      {How::transposed, {130, 517}, "large transposed", Run::seldom},
  };
  return all;
}

/// A tensor of the layout whose memory `fill` has filled.
inline Tensor laid_out(const Layout& layout, const std::function<Tensor(at::IntArrayRef)>& fill) {
  auto sizes = layout.sizes;
  switch (layout.how) {
    case How::transposed: {
      std::reverse(sizes.begin(), sizes.end());
      std::vector<int64_t> order(sizes.size());
      for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(order.size() - 1 - d);
      return fill(sizes).permute(order);
    }
    case How::stepped: {
      for (auto& s : sizes) s *= 2;
      auto made = fill(sizes);
      for (size_t d = 0; d < sizes.size(); ++d) made = made.slice(static_cast<int64_t>(d), 1, sizes[d], 2);
      return made;
    }
    case How::expanded:
      sizes[0] = 1;
      return fill(sizes).expand(layout.sizes);
    default:
      return fill(sizes);
  }
}

inline Tensor random_numbers(at::ScalarType dtype, at::IntArrayRef sizes) {
  if (at::isFloatingType(dtype)) return at::randn(sizes).mul(2).to(dtype);
  if (dtype == at::kBool) return at::randint(0, 2, sizes).to(dtype);
  return (dtype == at::kByte ? at::randint(0, 12, sizes) : at::randint(-5, 6, sizes)).to(dtype);
}

template <class T>
Tensor integer_edges(at::ScalarType dtype) {
  using Limits = std::numeric_limits<T>;
  const std::vector<int64_t> edges = {
      Limits::min(),     Limits::min() + 1,    0, 1, 2, 3, 7, 100, Limits::max() - 1, Limits::max(),
      Limits::max() / 2, Limits::max() / 2 + 1};
  auto made = at::tensor(edges, at::kLong).to(dtype);
  return std::is_signed_v<T> ? at::cat({made, at::tensor({-1, -2, -3, -100}, at::kLong).to(dtype)}) : made;
}

inline Tensor edges(at::ScalarType dtype) {
  const double inf = INFINITY;
  switch (dtype) {
    case at::kLong:
      return integer_edges<int64_t>(dtype);
    case at::kInt:
      return integer_edges<int32_t>(dtype);
    case at::kShort:
      return integer_edges<int16_t>(dtype);
    case at::kChar:
      return integer_edges<int8_t>(dtype);
    case at::kByte:
      return integer_edges<uint8_t>(dtype);
    case at::kBool:
      return at::tensor({0, 1}).to(dtype);
    default:
      break;
  }
  std::vector<double> values = {NAN, inf,  -inf, 0.0,  -0.0,  1,   -1, 0.5, -0.5, 1.5,
                                2.5, -2.5, 3,    1e-3, -1e-3, 0.1, 10, -10, 20.5, -20.5};
  switch (dtype) {
    case at::kFloat:
      values.insert(values.end(), {1e-40, -1e-40, 3.4e38, -3.4e38, 88.5, 89, -103.5, 1e-30, 1e10, 16777217});
      break;
    case at::kDouble:
      values.insert(values.end(), {1e-310, 1.7e308, -1.7e308, 709.5, 710, -745, 1e15});
      break;
    case at::kHalf:
      values.insert(values.end(), {6e-8, 65504, -65504, 11, 2049});
      break;
    default:
      values.insert(values.end(), {1e-40, 3.3e38, 88.5, 257});
      break;
  }
  return at::tensor(values, at::kDouble).to(dtype);
}

/// Every edge with every other.
inline Inputs special_inputs(at::ScalarType dtype) {
  const auto values = edges(dtype);
  const int64_t n = values.numel();
  Inputs made;
  made.x = values.repeat_interleave(n);
  made.y = values.repeat({n});
  made.z = made.x.roll(7);
  made.p = made.u = made.x.clone();
  made.u = made.p.clone();
  made.mask = at::arange(n * n).remainder(3).eq(0);
  made.at = at::arange(n * n).flip(0);
  made.rows = at::tensor({1, 0, 1, 0, 0}, at::kLong);
  made.rows32 = made.rows.to(at::kInt);
  made.columns = made.rows;
  return made;
}

inline Inputs inputs_for(const Layout& layout, at::ScalarType dtype) {
  if (layout.how == How::special) return special_inputs(dtype);
  Inputs made;
  const auto numbers = [&](at::IntArrayRef sizes) { return random_numbers(dtype, sizes); };
  made.x = laid_out(layout, numbers), made.y = laid_out(layout, numbers), made.z = laid_out(layout, numbers);
  const bool real = at::isFloatingType(dtype);
  made.p = laid_out(layout, [&](at::IntArrayRef s) {
    return (real ? at::rand(s).mul(3).add(0.1) : at::randint(1, 4, s)).to(dtype);
  });
  made.u = laid_out(layout, [&](at::IntArrayRef s) {
    return (real                 ? at::rand(s).mul(1.8).sub(0.9)
            : dtype == at::kByte ? at::randint(0, 2, s)
                                 : at::randint(-1, 2, s))
        .to(dtype);
  });
  made.mask = laid_out(layout, [&](at::IntArrayRef s) { return at::randint(0, 2, s).to(at::kBool); });
  const int64_t rows = layout.sizes.empty() ? 1 : std::max<int64_t>(layout.sizes[0], 1);
  made.at = laid_out(layout, [&](at::IntArrayRef s) { return at::randint(0, rows, s, at::kLong); });
  made.rows = at::randint(0, rows, {5}, at::kLong);
  made.rows32 = at::randint(0, rows, {5}, at::kInt);
  made.columns = at::randint(0, layout.sizes.empty() ? 1 : layout.sizes.back(), {5}, at::kLong);
  return made;
}

/// Every way of storing a number gets every layout; those that differ in width only get a few.
inline bool chosen(const Layout& layout, at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return true;
    case at::kBFloat16:
    case at::kLong:
      return layout.run != Run::seldom;
    default:
      return layout.run == Run::always;
  }
}

inline bool applies(const Case& c, const Layout& layout, at::ScalarType dtype) {
  const size_t rank = layout.how == How::special ? 1 : layout.sizes.size();
  const bool empty = std::find(layout.sizes.begin(), layout.sizes.end(), 0) != layout.sizes.end();
  if (!(c.types & kind_of(dtype))) return false;
  if ((c.needs & rank1) && rank < 1) return false;
  if ((c.needs & rank2) && rank != 2) return false;
  if ((c.needs & elements) && empty) return false;
  if ((c.needs & plain) && layout.how == How::special) return false;
  if ((c.needs & no_half) && half(dtype)) return false;
  return true;
}

}  // namespace graft::op_cases
