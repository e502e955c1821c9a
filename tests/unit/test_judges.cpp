// The judges of what is rounding and what is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiled_check.h"
#include "graft/compile.h"
#include "graft/error.h"
#include "ir/parser.h"
#include "verify/cancelling_sums.h"
#include "verify/double_precision.h"
#include "verify/rounding_noise.h"
#include "verify/tolerance.h"

namespace graft::verify {
namespace {

/// A few layers over this dtype, and a judgement on a result of theirs.
class Layers {
 public:
  explicit Layers(const std::string& dtype) {
    std::string text = "graph(%0 \"x\": " + dtype + "[6, 32], %1 \"w\": " + dtype + "[32, 32]) {\n";
    int last = 0;
    for (int layer = 0; layer < 4; ++layer) {
      const auto product = std::to_string(2 * layer + 2), bent = std::to_string(2 * layer + 3);
      text += "  %" + product + ": " + dtype + "[6, 32] = aten::mm(self=%" + std::to_string(last) +
              ", mat2=%1)\n  %" + bent + ": " + dtype + "[6, 32] = aten::tanh(self=%" + product + ")\n";
      last = 2 * layer + 3;
    }
    const auto graph = ir::parse(text + "  return (%" + std::to_string(last) + ")\n}\n");
    at::manual_seed(7);
    const auto type = to_torch(graph.inputs()[0]->type().dtype);
    runs_.emplace(graph, std::vector{at::randn({6, 32}).to(type), (at::randn({32, 32}) / 4).to(type)},
                  std::vector<at::Generator>());
  }

  at::Tensor eager() const { return runs_->plain()[0]; }
  at::Tensor exact() const { return runs_->precise()[0]; }
  bool calls_it_noise(const at::Tensor& got) const {
    std::vector<at::Tensor> perturbed;
    for (int run = 0; run < 30; ++run) perturbed.push_back(runs_->perturbed()[0]);
    return is_rounding_noise(got, eager(), eager(), exact(), perturbed, eager().scalar_type());
  }

 private:
  std::optional<DoublePrecisionRuns> runs_;
};

TEST(Judges, RoundingIsNoiseAndAWrongResultIsNot) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    SCOPED_TRACE(dtype);
    const Layers layers(dtype);
    const auto type = layers.eager().scalar_type();
    EXPECT_TRUE(layers.calls_it_noise(layers.exact().to(type)));
    EXPECT_TRUE(layers.calls_it_noise(layers.eager()));
    // Rows that lie elsewhere, a forgotten layer's worth, half as much again.
    EXPECT_FALSE(layers.calls_it_noise(layers.eager().roll(1, 0)));
    EXPECT_FALSE(layers.calls_it_noise(layers.eager().tanh()));
    EXPECT_FALSE(layers.calls_it_noise(layers.eager() * 1.5));
  }
}

// However they lie: in one pass over the memory, or not.
TEST(Judges, DifferenceIsMeasuredByTheLargestValue) {
  const auto want = at::linspace(-2, 1, 77).view({7, 11});
  const auto off = [&](double by) {
    auto got = want.clone();
    got[3][4] += by * 2;  // the largest
    return got;
  };
  const auto transposed = [](const at::Tensor& t) { return t.t().contiguous().t(); };
  for (const auto& lie : {+[](const at::Tensor& t) { return t; }, +transposed}) {
    const auto differs = [&](const at::Tensor& got) {
      return !difference(lie(got), want, at::kFloat).empty();
    };
    EXPECT_FALSE(differs(want.clone()));
    EXPECT_FALSE(differs(off(0.9e-3)));
    EXPECT_TRUE(differs(off(1.1e-3)));
    EXPECT_TRUE(differs(off(-1.1e-3)));
    for (const double odd : {std::numeric_limits<double>::infinity(), std::nan("")}) {
      auto got = want.clone();
      got[6][10] = odd;
      EXPECT_TRUE(differs(got));
      EXPECT_EQ(difference(lie(got), got, at::kFloat), "");
    }
  }
}

// A row of small numbers is not hidden by the large ones of another.
TEST(Judges, EachRowIsMeasuredByItsOwnLargestValue) {
  at::manual_seed(1);
  const auto want = at::randn({5, 40}) * at::tensor({1., 1e-5, 1., 1e3, 1e-2}).to(at::kFloat).unsqueeze(1);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    SCOPED_TRACE(dtype);
    const auto w = want.to(dtype);
    EXPECT_EQ(difference(w.clone(), w), "");
    for (const bool transposed : {false, true})
      for (int64_t row = 0; row < 5; ++row) {
        auto got = transposed ? w.t().contiguous().t() : w.clone();
        got[row] *= -1;
        EXPECT_NE(difference(got, w), "") << row;
      }
  }
  // Few numbers are judged together.
  const auto few = at::tensor({1e-7F, 1.F, 2.F});
  EXPECT_EQ(difference(few + 1e-6, few), "");
}

/// What the judge says of a result of a graph of one input.
class Judged {
 public:
  Judged(const std::string& text, const at::Tensor& x) : runs_(ir::parse(text), {x}, {}) {
    for (int run = 0; run < 10; ++run) perturbed_.push_back(runs_.perturbed()[0]);
  }
  at::Tensor eager() const { return runs_.plain()[0]; }
  bool noise(const at::Tensor& got, const at::Tensor& want) const {
    return is_rounding_noise(got, want, runs_.plain()[0], runs_.precise()[0], perturbed_, at::kFloat);
  }

 private:
  DoublePrecisionRuns runs_;
  std::vector<at::Tensor> perturbed_;
};

TEST(Judges, AWrongRowOfSmallNumbersIsNotNoise) {
  at::manual_seed(2);
  const Judged judged(R"(graph(%0 "x": f32[4, 32]) {
  %1: f32[4, 32] = aten::exp(self=%0)
  %2: f32[4, 32] = aten::sin(self=%1)
  return (%2)
})",
                      at::randn({4, 32}) - at::tensor({0.F, 12.F, 0.F, 3.F}).unsqueeze(1));
  const auto eager = judged.eager();
  EXPECT_TRUE(judged.noise(eager * (1 + 1e-7), eager));
  auto wrong = eager.clone();
  wrong[1] *= 1.01;
  EXPECT_FALSE(judged.noise(wrong, eager));
}

// A flag may fall to the other side where the number it is asked of is nothing but rounding, nowhere else.
TEST(Judges, FlagsPartOnlyAtAKink) {
  auto x = at::linspace(-1, 1, 64);
  x[20] = 0.1F;
  const Judged judged(R"(graph(%0 "x": f32[64]) {
  %1: f32[64] = aten::mul.Scalar(self=%0, other=10)
  %2: f32[64] = aten::sub.Scalar(self=%1, other=1, alpha=1)
  %3: bool[64] = aten::gt.Scalar(self=%2, other=0)
  return (%3)
})",
                      x);
  const auto eager = judged.eager();
  const auto flipped = [&](int64_t at) {
    auto got = eager.clone();
    got[at].logical_not_();
    return got;
  };
  EXPECT_TRUE(judged.noise(flipped(20), eager));
  EXPECT_FALSE(judged.noise(flipped(21), eager));
}

// Where eager's kernels overflow and the exact result does not, the exact result is right as well.
TEST(Judges, TheExactResultIsRightWhereEagerHasNaN) {
  const auto x = at::tensor({1.F, 200.F, 3.F});
  const Judged judged(R"(graph(%0 "x": f32[3]) {
  %1: f32[3] = aten::exp(self=%0)
  %2: f32[3] = aten::div.Tensor(self=%1, other=%1)
  return (%2)
})",
                      x);
  const auto eager = judged.eager();
  ASSERT_TRUE(std::isnan(eager[1].item<float>()));
  EXPECT_TRUE(judged.noise(at::ones(3), eager));
  EXPECT_TRUE(judged.noise(eager, eager));
  EXPECT_FALSE(judged.noise(at::tensor({1.F, 1.F, std::nanf("")}), eager));
  EXPECT_FALSE(judged.noise(at::tensor({1.F, std::numeric_limits<float>::infinity(), 1.F}), eager));
}

TEST(CancellingSums, MagnitudesOfTheTermsOfSums) {
  const auto graph = ir::parse(R"(graph(%0 "x": f32[5, 6]) {
  %1: f32[5, 6] = aten::neg(self=%0)
  %2: f32[1, 6] = aten::sum.dim_IntList(self=%1, dim=[0], keepdim=true)
  %3: f32[6] = aten::view(self=%2, size=[6])
  %4: f32[5, 6] = aten::exp(self=%0)
  return (%4, %3, None)
})");
  const auto x = at::randn({5, 6});
  const auto sizes = sums_of_magnitudes(graph, Sums::all, {0, 1, 2}, {x}, {});
  ASSERT_EQ(sizes.size(), 3);
  EXPECT_FALSE(sizes[0].defined());  // no sum
  EXPECT_TRUE(at::allclose(sizes[1], x.abs().sum(0)));
  EXPECT_FALSE(sizes[2].defined());
  EXPECT_FALSE(sums_of_magnitudes(graph, Sums::of_two, {1}, {x}, {})[0].defined());
}

TEST(CancellingSums, SumsOfTwo) {
  const auto graph = ir::parse(R"(graph(%0 "x": bf16[5], %1 "y": bf16[5]) {
  %2: bf16[5] = aten::sub.Tensor(self=%0, other=%1)
  return (%2)
})");
  const auto x = at::randn({5}, at::kBFloat16), y = at::randn({5}, at::kBFloat16);
  for (const auto which : {Sums::of_two, Sums::all})
    EXPECT_TRUE(at::equal(sums_of_magnitudes(graph, which, {0}, {x, y}, {})[0], x.abs() + y.abs()));
}

// Both give rounding where the exact result is 0, each its own.
TEST(CancellingSums, WhatIsLeftOfASumIsNoMismatch) {
  at::manual_seed(3);
  const at::NoGradGuard no_grad;
  double shift = 0;
  const auto left = [&shift](const at::Tensor& x) { return (x - x.mean(0, true) + shift).sum(0); };
  const auto compiled = compile(std::function<at::Tensor(const at::Tensor&)>(left), {.replay = Replay::off});
  EXPECT_LT(compiled(at::randn({3001, 40})).abs().max().item<double>(), 1e-2);
  // A small constant in each of the terms is seen all the same.
  shift = 1e-4;
  EXPECT_THROW(compiled(at::randn({3001, 40})), Mismatch);
}

// The mean that is taken away inside of a norm is rounded, and what is left of it adds up.
TEST(DoublePrecision, WhatIsRoundedInsideOfANormShows) {
  const at::NoGradGuard no_grad;
  at::manual_seed(4);
  const auto left = [](at::Tensor x) { return at::layer_norm(x, {3}).transpose(0, 1).sum(0, true); };
  for (int i = 0; i < 20; ++i) {
    const auto compiled = compile(left);
    for (int call = 0; call < 2; ++call)
      EXPECT_LT(compiled(at::randn({5, 3}) + 8).abs().max().item<double>(), 1e-4);
  }
}

// What an operator makes of an infinity in one row says nothing about the rounding in the others.
TEST(DoublePrecision, WhatIsRoundedInsideOfANormShowsBesideAnInfinity) {
  const auto graph = ir::parse(R"(graph(%0 "x": f32[3, 4]) {
  %1: f32[3, 4], %2: f32[3, 1], %3: f32[3, 1] = aten::native_layer_norm(input=%0, normalized_shape=[4], weight=None, bias=None, eps=1e-05)
  %4: f32[3] = aten::sum.dim_IntList(self=%1, dim=[1])
  return (%4, %2, %3)
})");
  auto x = at::arange(12.f).view({3, 4}) + 100;
  for (const double odd : {0.0, double{INFINITY}}) {
    x[2][1] = odd;
    const DoublePrecisionRuns runs(graph, {x}, {});
    // The sum of what a norm gives is zero but for the rounding of its mean: in the operator as a whole none.
    EXPECT_GT(runs.perturbed()[0][0].abs().item<double>(), 1e-6) << odd;
  }
}

// An operator may lay out its result as its arguments lie, not as it did when the graph was captured.
TEST(AtenCall, ResultsLieAsTheGraphSays) {
  testing_tools::expect_same_both_ways(R"(graph(%0 "q": f32[2, 4, 9, 8]) {
  %1: f32[2, 4, 9, 8]{288, 8, 32, 1}, %2: f32[2, 4, 9]{36, 1, 4} = aten::_scaled_dot_product_flash_attention_for_cpu(query=%0, key=%0, value=%0)
  %3: f32[2, 4, 9, 8]{288, 8, 32, 1} = aten::exp(self=%1)
  %4: f32[2, 9, 4, 8] = aten::transpose.int(self=%3, dim0=1, dim1=2)
  %5: f32[18, 32] = aten::view(self=%4, size=[18, 32])
  return (%5)
}
)");
}

// Found by PyTorch's samples: the gradient of a weight of cov(), real, was judged by a run in which what is
// complex rounded as before.
TEST(DoublePrecision, ComplexNumbersAreTwoDoubles) {
  const auto graph = ir::parse(R"(graph(%0 "x": c64[64]) {
  %1: c64[64] = aten::mul.Tensor(self=%0, other=%0)
  %2: f32[64] = aten::abs(self=%1)
  %3: f32[64] = aten::abs(self=%0)
  %4: f32[64] = aten::mul.Tensor(self=%3, other=%3)
  %5: f32[64] = aten::sub.Tensor(self=%2, other=%4)
  %6: c128[64] = aten::_to_copy(self=%1, dtype=c128)
  return (%5, %6)
})");
  at::manual_seed(3);
  for (const bool conj : {false, true}) {
    auto x = at::randn({64}, at::kComplexFloat);
    if (conj) x = x.conj();
    const DoublePrecisionRuns runs(graph, {x}, {});
    ASSERT_EQ(runs.precise().size(), 2u);
    EXPECT_EQ(runs.precise()[0].scalar_type(), at::kDouble);
    const auto noise = [](const at::Tensor& t) { return t.abs().max().item<double>(); };
    EXPECT_LT(noise(runs.precise()[0]), 1e-14);
    EXPECT_GT(noise(runs.plain()[0]), 1e-8);
    EXPECT_GT(noise(runs.perturbed()[0]), 1e-8);
    const auto exact = x.resolve_conj().to(at::kComplexDouble).square();
    EXPECT_LT(noise(runs.precise()[1] - exact), 1e-14);
  }
}

TEST(DoublePrecision, ALargestElementIsOneOfThemWhateverTheRounding) {
  const auto graph = ir::parse(R"(graph(%0 "x": f32[3, 4]) {
  %1: f32[3, 4] = aten::mul.Tensor(self=%0, other=%0)
  %2: f32[3, 1] = aten::amax(self=%1, dim=[1], keepdim=true)
  %3: bool[3, 4] = aten::eq.Tensor(self=%1, other=%2)
  return (%3)
})");
  const DoublePrecisionRuns runs(graph, {at::arange(12.f).view({3, 4})}, {});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(runs.perturbed()[0].sum(1), at::ones({3}, at::kLong)));
}

}  // namespace
}  // namespace graft::verify
