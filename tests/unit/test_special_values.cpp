// Values at which ATen's own kernels disagree, between machines or between whole vectors and what is left
// over: compiled code gives what is mathematically right. Where there is no such thing (NaN as a whole
// number), it gives what ATen gives on the same machine.
#include <gtest/gtest.h>

#include <cmath>

#include "compiled_check.h"
#include "graft/compile.h"
#include "targets/cpu/jit.h"

namespace graft {
namespace {

using at::Tensor;
using testing_tools::differs;
using Tensors = std::vector<Tensor>;

/// What the program gives, in a call that is not checked: a checked one gives what the function gives.
template <class F, class... Inputs>
auto compiled(F function, const Inputs&... inputs) {
  const auto fast = compile(function, {.fullgraph = true, .verify = false, .cache = false});
  for (int call = 0; call < 3; ++call) fast(inputs.clone()...);
  return fast(inputs...);
}

/// Several times over, so that whole vectors have each, and a few more.
Tensor repeated(const std::vector<double>& values, at::ScalarType dtype) {
  const auto one = at::tensor(values, at::kDouble).to(dtype);
  return at::cat({one.repeat({9}), one.slice(0, 0, 3)});
}

TEST(SpecialValues, GeluOfInfinityIsInfinity) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const auto x = repeated({INFINITY, 1, 60000, -3, 0}, dtype);
    const auto y = compiled([](Tensor t) { return at::gelu(t); }, x);
    EXPECT_TRUE(y.isinf().eq(x.isinf()).all().item<bool>()) << dtype << y;
    EXPECT_FALSE(y.isnan().any().item<bool>()) << dtype << y;
  }
}

TEST(SpecialValues, SigmoidFarBelowZeroIsADenormal) {
  const auto x = at::linspace(-745, -700, 37, at::kDouble);
  const auto got = compile([](Tensor t) { return t.sigmoid(); }, {.verify = false})(x);
  // Beside 1 nothing is left of e^x.
  EXPECT_TRUE(at::allclose(got, x.exp(), 1e-14, 1e-322));
  EXPECT_GT(got[0].item<double>(), 0);
}

TEST(SpecialValues, RemaindersOfHugeNumbersAreExact) {
  const std::vector<double> values{1,     -1,   3,     -3,    0.1,   -0.1,     1e10,
                                   -1e10, 3e38, -3e38, 1e-40, 1e-30, 16777216, 7.5};
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto one = at::tensor(values, at::kDouble).to(dtype);
    const auto x = one.repeat_interleave(one.numel()), y = one.repeat({one.numel()});
    const auto got =
        compiled([](Tensor a, Tensor b) { return Tensors{at::fmod(a, b), at::remainder(a, b)}; }, x, y);
    for (int64_t i = 0; i < x.numel(); ++i) {
      // Both numbers are doubles as well, and a remainder is exact.
      const double a = x[i].item<double>(), b = y[i].item<double>(), exact = std::fmod(a, b);
      EXPECT_EQ(got[0][i].item<double>(), exact) << dtype << " fmod " << a << ", " << b;
      const auto whole = at::scalar_tensor(exact, dtype);
      const auto right = exact != 0 && (exact < 0) != (b < 0) ? whole + y[i] : whole;
      EXPECT_EQ(got[1][i].item<double>(), right.item<double>()) << dtype << " remainder " << a << ", " << b;
    }
  }
}

TEST(SpecialValues, WhatIsNoWholeNumberBecomesOneAsInEager) {
  const bool arm = cpu::host().triple.starts_with("aarch64");
  const auto dtypes = arm ? std::vector{at::kLong, at::kInt}
                          : std::vector{at::kLong, at::kInt, at::kShort, at::kChar, at::kByte};
  for (const auto from : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (const auto to : dtypes) {
      const auto x = repeated({NAN, INFINITY, -INFINITY, 3e9, -3e9, 1e19, -1e19, 70000, -70000, 300, -300,
                               1e30, 5e9 + 7, -200.7, 2147483647, -2147483648.0},
                              from);
      const auto eager = [to](Tensor t) { return t.to(to); };
      EXPECT_EQ(differs(compiled(eager, x), eager(x)), "") << from << " to " << to;
    }
}

// ATen rounds each result to the half type. What jumps must see the rounded number: 2.998 is 3 in bfloat16.
TEST(SpecialValues, HalfNumbersAreRoundedBeforeAFunctionThatJumps) {
  const auto eager = [](Tensor a, Tensor b) {
    const auto m = a * b;
    return Tensors{m.floor(),    m.ceil(),    m.round(), m.trunc(),       m.to(at::kLong),       m.eq(a),
                   m.lt(b),      m.ge(3),     m.isinf(), m.to(at::kBool), m.logical_not(),       m.sign(),
                   m.argmax(-1), m.argmin(0), m.any(0),  at::fmod(m, 1),  m.eq(m.amax(-1, true))};
  };
  for (const auto dtype : {at::kBFloat16, at::kHalf})
    for (int call = 0; call < 3; ++call) {
      at::manual_seed(static_cast<uint64_t>(call));
      const auto a = at::randint(-40, 41, {30, 70}).mul(0.11).to(dtype),
                 b = at::randint(-40, 41, {70}).mul(0.07).to(dtype);
      const auto got = compiled(eager, a, b), want = eager(a, b);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(differs(got[i], want[i], {0, 0, 0}), "") << dtype << " output " << i;
    }
}

// Of several NaN the last, of what is equal the first; of nothing but -infinity the first that is no padding.
TEST(SpecialValues, PlacesInWindowsThatOverlap) {
  const auto eager = [](Tensor t) {
    const auto [best, places] = at::max_pool2d_with_indices(t, {3, 3}, {2, 2}, {1, 1});
    const auto [rows, at_rows] = at::max_pool2d_with_indices(t, {3, 2}, {1, 1}, {0, 0}, {1, 2});
    return Tensors{best, places, rows, at_rows};
  };
  const auto values = at::tensor({double{NAN}, -INFINITY, -INFINITY, -INFINITY, 1., 2., 2., INFINITY});
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16})
    for (int call = 0; call < 6; ++call) {
      at::manual_seed(static_cast<uint64_t>(call));
      // The fewer kinds of values, the more windows of one kind.
      auto x = values.index({at::randint(call % 2 ? 0 : 1, call < 3 ? 4 : 8, {2, 3, 11, 14})}).to(dtype);
      if (call == 5) x = x.contiguous(at::MemoryFormat::ChannelsLast);
      const auto got = compiled(eager, x), want = eager(x);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(differs(got[i], want[i], {0, 0, 0}), "") << dtype << " output " << i << " call " << call;
    }
}

TEST(SpecialValues, SignsOfZerosAndOfWhatIsNoNumber) {
  const auto eager = [](Tensor a, Tensor b) {
    return Tensors{at::copysign(a, b), b.signbit(), at::copysign(a, -0.0), at::atan2(a, b)};
  };
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const auto a = repeated({1, -2, 0, -0.0, INFINITY, NAN, -NAN, 3}, dtype),
               b = repeated({-0.0, 0, -NAN, NAN, -INFINITY, -1, 1, -0.0}, dtype);
    const auto got = compiled(eager, a, b), want = eager(a, b);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(differs(got[i], want[i]), "") << dtype << " output " << i;
      if (i != 1)
        EXPECT_TRUE(at::equal(got[i].signbit().logical_or(got[i].isnan()),
                              want[i].signbit().logical_or(want[i].isnan())))
            << dtype << i;
    }
  }
}

}  // namespace
}  // namespace graft
