// Results that are noise because others, which agree, decide them: Adam's step where a gradient is rounding.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "graft/compile.h"
#include "ir/parser.h"
#include "verify/derived_results.h"

namespace graft::verify {
namespace {

using at::Tensor;

const char* const kStep = R"(graph(%0 "p": f32[3], %1 "g": f32[3], %2 "m": f32[3]) {
  %3: f32[3] = aten::add.Tensor(self=%2, other=%1)
  %4: f32[3] = aten::sign(self=%3)
  %5: f32[3] = aten::sub.Tensor(self=%0, other=%4)
  %6: f32[3] = aten::rand_like(self=%0)
  return (%3, %5, %6)
}
)";

TEST(DerivedResults, FromAKnownResultOrFromTheInputs) {
  const auto graph = ir::parse(kStep);
  const auto p = at::zeros({3}), g = at::ones({3}), m = at::ones({3});
  const auto from_inputs = recompute_from_results(graph, 1, {p, g, m}, {{}, {}, {}});
  EXPECT_TRUE(at::equal(from_inputs, at::full({3}, -1.0)));
  const auto from_known = recompute_from_results(graph, 1, {p, g, m}, {at::full({3}, -2.0), {}, {}});
  EXPECT_TRUE(at::equal(from_known, at::ones({3})));
  EXPECT_FALSE(recompute_from_results(graph, 2, {p, g, m}, {{}, {}, {}}).defined()) << "random numbers";
}

TEST(DerivedResults, NotThroughMany) {
  std::string text = "graph(%0 \"x\": f32[1]) {\n";
  for (int i = 1; i <= 80; ++i)
    text += "  %" + std::to_string(i) + ": f32[1] = aten::neg(self=%" + std::to_string(i - 1) + ")\n";
  const auto graph = ir::parse(text + "  return (%40, %80)\n}\n");
  EXPECT_TRUE(recompute_from_results(graph, 0, {at::ones({1})}, {{}, {}}).defined());
  EXPECT_FALSE(recompute_from_results(graph, 1, {at::ones({1})}, {{}, {}}).defined());
  EXPECT_TRUE(recompute_from_results(graph, 1, {at::ones({1})}, {at::ones({1}), {}}).defined());
}

/// A step as sensitive as Adam's first one: every gradient counts by its sign, a sum that is all rounding
/// too.
struct SignStep {
  double rate = 1;
  Tensor operator()(Tensor p, Tensor average, const Tensor& x) const {
    const auto gradient = (x * 1.1).sum(1);
    average.mul_(0.9).add_(gradient * 0.1);
    p.sub_(average.sign() * rate);
    return average.abs().max();
  }
};

Tensor rows_that_cancel() {
  auto x = at::randn({40, 3000});
  x.select(1, 0).sub_(x.to(at::kDouble).sum(1).to(at::kFloat));
  x.select(0, 0).add_(1);  // one of them does not
  return x;
}

TEST(DerivedResults, ASignOfRoundingIsNoMismatch) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    at::manual_seed(seed);
    const auto fast = compile(SignStep(), {.cache = false});
    auto p = at::zeros({40}), average = at::zeros({40});
    const auto x = rows_that_cancel();
    for (int call = 0; call < 3; ++call) EXPECT_NO_THROW(fast(p, average, x)) << "seed " << seed;
  }
}

// The same where the function does something else the second time: what follows from the graph is not what
// the function makes of its own averages.
TEST(DerivedResults, AStepThatChangedIsOne) {
  at::manual_seed(1);
  SignStep step;
  const auto fast = compile([&step](Tensor p, Tensor average, Tensor x) { return step(p, average, x); },
                            {.replay = Replay::off, .cache = false});
  auto p = at::zeros({40}), average = at::zeros({40});
  const auto x = rows_that_cancel();
  fast(p, average, x);
  step.rate = 3;
  EXPECT_THROW(fast(p, average, x), Mismatch);
}

}  // namespace
}  // namespace graft::verify
