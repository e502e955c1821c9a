// Running sums and products as kernels: what becomes one, along which dimension lines lie side by side, and
// that the results are eager's.
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "aten_target.h"
#include "codegen/scan.h"
#include "compiled_check.h"
#include "compiler/lower.h"
#include "graft/compile.h"
#include "passes/pipeline.h"
#include "targets/cuda_facts.h"
#include "targets/targets.h"

namespace graft {
namespace {

using at::Tensor;
using testing_tools::differs;
using testing_tools::expect_same_both_ways;

TEST(Scans, WithWhatComputesTheArgument) {
  const auto both = expect_same_both_ways(R"(graph(%0 "x": f32[70, 80], %1 "y": f32[70, 80]) {
  %2: f32[70, 80] = aten::exp(self=%0)
  %3: f32[70, 80] = aten::mul.Tensor(self=%2, other=%1)
  %4: f32[70, 80] = aten::cumsum(self=%3, dim=0)
  return (%4)
}
)");
  EXPECT_EQ(both.kernels, 1);
  EXPECT_EQ(both.extern_calls, 0);
}

/// Few lines have few workers: what is dear is better computed by a kernel with more.
TEST(Scans, no_DearArgumentOfFewLines) {
  const auto both = expect_same_both_ways(R"(graph(%0 "x": f32[70, 3]) {
  %1: f32[70, 3] = aten::exp(self=%0)
  %2: f32[70, 3] = aten::cumsum(self=%1, dim=0)
  return (%2)
}
)");
  EXPECT_EQ(both.kernels, 2);
  EXPECT_EQ(both.extern_calls, 0);
}

TEST(Scans, no_WhatIsComputedFromIt) {
  const auto both = expect_same_both_ways(R"(graph(%0 "x": f32[70, 33]) {
  %1: f32[70, 33] = aten::cumsum(self=%0, dim=1)
  %2: f32[70, 33] = aten::sin(self=%1)
  %3: f32[70] = aten::sum.dim_IntList(self=%1, dim=[1])
  return (%2, %3)
}
)");
  EXPECT_EQ(both.kernels, 2);
  EXPECT_EQ(both.extern_calls, 0);
}

TEST(Scans, no_ArgumentThatOthersNeedInMemory) {
  const auto both = expect_same_both_ways(R"(graph(%0 "x": f32[70, 33]) {
  %1: f32[70, 33] = aten::exp(self=%0)
  %2: f32[70, 33] = aten::cumsum(self=%1, dim=0)
  return (%1, %2)
}
)");
  EXPECT_EQ(both.kernels, 2);
}

TEST(Scans, OneAfterTheOther) {
  const auto both = expect_same_both_ways(R"(graph(%0 "x": f64[9, 5, 7]) {
  %1: f64[9, 5, 7] = aten::cumsum(self=%0, dim=2)
  %2: f64[9, 5, 7] = aten::cumsum(self=%1, dim=0)
  %3: f64[9, 5, 7] = aten::cumprod(self=%2, dim=1)
  return (%3)
}
)");
  EXPECT_EQ(both.extern_calls, 0);
}

TEST(Scans, no_KernelWhereTheTargetHasNone) {
  const auto graph = ir::parse(
      "graph(%0 \"x\": f32[8]) {\n  %1: f32[8] = aten::cumsum(self=%0, dim=0)\n"
      "  return (%1)\n}\n");
  EXPECT_TRUE(codegen::scan_of(*graph.nodes().front()));
  EXPECT_TRUE(codegen::schedule(graph, cuda::limits()).steps[0].external);
  EXPECT_FALSE(codegen::schedule(graph, target_for({}).limits()).steps[0].external);
}

TEST(Scans, ShapesLayoutsAndTypes) {
  at::manual_seed(3);
  const std::vector<std::vector<int64_t>> shapes = {{1},     {2},      {5000},     {3, 1000}, {1000, 3},
                                                    {64, 9}, {9, 130}, {7, 11, 6}, {2, 1, 5}, {33, 40}};
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kByte, at::kBool})
    for (const auto& shape : shapes)
      for (const bool turned : {false, true}) {
        const auto rank = static_cast<int64_t>(shape.size());
        const auto f = [&](Tensor x) {
          std::vector<Tensor> all;
          for (int64_t dim = 0; dim < rank; ++dim)
            all.insert(all.end(), {x.cumsum(dim), x.cumprod(dim), x.flip({dim}).cumsum(dim).flip({dim})});
          return all;
        };
        const auto fast = compile(f, {.fullgraph = true, .verify = false, .cache = false});
        for (int call = 0; call < 3; ++call) {
          auto x =
              at::isFloatingType(dtype) ? at::randn(shape).to(dtype) : at::randint(0, 3, shape).to(dtype);
          if (turned) x = x.transpose(0, -1).contiguous().transpose(0, -1);
          const auto got = fast(x), want = f(x);
          for (size_t i = 0; i < want.size(); ++i)
            EXPECT_EQ(differs(got[i], want[i]), "") << c10::toString(dtype) << " " << x.sizes() << " " << i;
        }
      }
}

/// A float's sum is a double until it is stored: a million small numbers do not vanish beside it.
TEST(Scans, ALongSumLosesNothing) {
  const auto f = [](Tensor x) { return x.cumsum(0); };
  const auto fast = compile(f, {.fullgraph = true, .cache = false});
  const auto x = at::full({1 << 21}, 0.1f);
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(at::equal(fast(x), f(x)));
}

TEST(Scans, InPlace) {
  const at::NoGradGuard no_grad;
  const auto f = [](Tensor x, Tensor y) {
    x.cumsum_(0);
    y.cumprod_(-1);
    return x.sum() + y.sum();
  };
  const auto fast = compile(f, {.fullgraph = true, .verify = false, .cache = false});
  for (int call = 0; call < 4; ++call) {
    const auto x = at::rand({40, 33}), y = at::rand({5, 64}), a = x.clone(), b = y.clone();
    EXPECT_EQ(differs(fast(x, y), f(a, b)), "");
    EXPECT_EQ(differs(x, a), "");
    EXPECT_EQ(differs(y, b), "");
  }
}

void expect_same_gradients(const std::function<Tensor(Tensor)>& f, const Tensor& data) {
  const auto fast = compile(f, {.fullgraph = true, .cache = false});
  for (int call = 0; call < 3; ++call) {
    const auto x = data.clone().requires_grad_(), y = data.clone().requires_grad_();
    const auto weights = at::randn(data.sizes()).to(data.scalar_type());
    const auto got = torch::autograd::grad({(fast(x) * weights).sum()}, {x})[0];
    EXPECT_EQ(differs(got, torch::autograd::grad({(f(y) * weights).sum()}, {y})[0]), "") << call;
  }
}

TEST(Scans, Gradients) {
  at::manual_seed(5);
  const auto x = at::randn({6, 20}, at::kDouble);
  expect_same_gradients([](Tensor t) { return t.cumsum(0).sin(); }, x);
  expect_same_gradients([](Tensor t) { return t.exp().cumsum(-1); }, x);
  expect_same_gradients([](Tensor t) { return t.cumprod(1); }, x);
  // Of a row with a zero, of one with two, and of one with none: one graph all the same.
  auto zeros = x.clone();
  zeros[0][3] = 0;
  zeros[1][0] = 0;
  zeros[1][7] = 0;
  expect_same_gradients([](Tensor t) { return t.cumprod(1); }, zeros);
  expect_same_gradients([](Tensor t) { return (t * 1).cumprod(0); }, zeros);
}

/// Whether there is a zero is asked in each call: the first call's answer is not the second's.
TEST(Scans, GradientsOfAProductWhoseZerosComeLater) {
  const auto f = [](Tensor t) { return t.cumprod(0); };
  const auto fast = compile(f, {.fullgraph = true, .cache = false});
  for (const int64_t zero : {-1, -1, 2, -1, 4, 0}) {
    auto data = at::arange(1, 7, at::kDouble);
    if (zero >= 0) data[zero] = 0;
    const auto x = data.clone().requires_grad_(), y = data.clone().requires_grad_();
    fast(x).sum().backward();
    f(y).sum().backward();
    EXPECT_EQ(differs(x.grad(), y.grad()), "") << zero;
  }
}

}  // namespace
}  // namespace graft
