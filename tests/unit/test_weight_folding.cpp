// What depends on weights alone is computed once per version of them: the cut as text, and runs while weights
// change.
#include "passes/weight_folding.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <thread>

#include "compiled_check.h"
#include "compiler/build.h"
#include "ir/verifier.h"

namespace graft::passes {
namespace {

constexpr int64_t all = 100;

// x W' with W' = W (B A): only the last product depends on x.
const char* const kHadamard =
    R"(graph(%0 "x": f32[4, 6], %1 "w": f32[5, 6], %2 "b": f32[5, 2], %3 "a": f32[2, 6]) {
  %4: f32[5, 6] = aten::mm(self=%2, mat2=%3)
  %5: f32[5, 6] = aten::mul.Tensor(self=%1, other=%4)
  %6: f32[6, 5]{1, 6} = aten::t(self=%5)
  %7: f32[4, 5] = aten::mm(self=%0, mat2=%6)
  return (%7)
}
)";

std::string text_of(const ir::Graph& graph) { return ir::to_string(ir::clone(graph)); }

TEST(WeightFolding, TheCallKeepsWhatDependsOnIt) {
  const auto graph = ir::parse(kHadamard);
  const auto folding = fold_weights(graph, {1, 2, 3}, all);
  ASSERT_TRUE(folding);
  EXPECT_EQ(text_of(folding->main), text_of(ir::parse(R"(graph(%0 "x": f32[4, 6], %1 "w": f32[5, 6],
      %2 "b": f32[5, 2], %3 "a": f32[2, 6], %4 "kept.5": f32[5, 6]) {
  %5: f32[6, 5]{1, 6} = aten::t(self=%4)
  %6: f32[4, 5] = aten::mm(self=%0, mat2=%5)
  return (%6)
}
)")));
  ASSERT_EQ(folding->groups.size(), 1U);
  ir::verify(folding->groups[0].graph);
  EXPECT_EQ(folding->groups[0].inputs, (std::vector<size_t>{2, 3, 1}));
  EXPECT_EQ(folding->groups[0].results, (std::vector<size_t>{4}));
}

TEST(WeightFolding, NothingIsKeptWithoutFrozenWeights) {
  const auto graph = ir::parse(kHadamard);
  EXPECT_FALSE(fold_weights(graph, {}, all));
  EXPECT_FALSE(fold_weights(graph, {1, 2}, all));  // A is another one in each call
}

TEST(WeightFolding, TheLargestAreLeftOutWhereThereIsTooMuch) {
  const auto graph = ir::parse(kHadamard);
  EXPECT_FALSE(fold_weights(graph, {1, 2, 3}, 0));
  EXPECT_FALSE(fold_weights(graph, {1, 2, 3}, 50));
  // A norm is small: it is kept, the product it is made of is not.
  const auto norm = ir::parse(R"(graph(%0 "x": f32[4, 6], %1 "b": f32[5, 2], %2 "a": f32[2, 6]) {
  %3: f32[5, 6] = aten::mm(self=%1, mat2=%2)
  %4: f32[5] = aten::sum.dim_IntList(self=%3, dim=[1], keepdim=false, dtype=None)
  %5: f32[6, 5]{1, 6} = aten::t(self=%3)
  %6: f32[4, 5] = aten::mm(self=%0, mat2=%5)
  %7: f32[4, 5] = aten::mul.Tensor(self=%6, other=%4)
  return (%7)
}
)");
  const auto folding = fold_weights(norm, {1, 2}, 40);
  ASSERT_TRUE(folding);
  EXPECT_EQ(folding->main.inputs().size(), 4U);
  EXPECT_EQ(folding->main.inputs()[3]->type().sizes, (std::vector<int64_t>{5}));
}

TEST(WeightFolding, LightWorkStaysWithTheCall) {
  // One kernel reads w and x: a copy of 2 w would be no less to read.
  EXPECT_FALSE(fold_weights(ir::parse(R"(graph(%0 "x": f32[4, 6], %1 "w": f32[4, 6]) {
  %2: f32[4, 6] = aten::exp(self=%1)
  %3: f32[4, 6] = aten::mul.Tensor(self=%0, other=%2)
  return (%3)
}
)"),
                            {1}, all));
}

TEST(WeightFolding, AResultIsMadeAnew) {
  // The caller may write into the sum, or through a view of it.
  for (const auto* result : {"%2", "%3"})
    EXPECT_FALSE(fold_weights(ir::parse(std::string(R"(graph(%0 "x": f32[4], %1 "w": f32[4, 6]) {
  %2: f32[4] = aten::sum.dim_IntList(self=%1, dim=[1], keepdim=false, dtype=None)
  %3: f32[2, 2] = aten::view(self=%2, size=[2, 2])
  %4: f32[4] = aten::mul.Tensor(self=%0, other=%2)
  return (%4, )") + result + ")\n}\n"),
                              {1}, all))
        << result;
}

TEST(WeightFolding, RandomNumbersAreDrawnInEachCall) {
  EXPECT_FALSE(fold_weights(ir::parse(R"(graph(%0 "x": f32[4], %1 "w": f32[4, 6]) {
  %2: f32[4, 6] = aten::bernoulli.p(self=%1, p=0.5, generator=None)
  %3: f32[4] = aten::sum.dim_IntList(self=%2, dim=[1], keepdim=false, dtype=None)
  %4: f32[4] = aten::mul.Tensor(self=%0, other=%3)
  return (%4)
}
)"),
                            {1}, all));
}

TEST(WeightFolding, LayersAreGroupsOfTheirOwn) {
  // Both use the same ones, which come from no weight.
  const auto graph = ir::parse(R"(graph(%0 "x": f32[4, 6], %1 "v": f32[6, 6], %2 "w": f32[6, 6]) {
  %3: f32[6, 6] = aten::full(size=[6, 6], fill_value=1.0, dtype=f32, layout=None, device=None, pin_memory=None)
  %4: f32[6, 6] = aten::mm(self=%1, mat2=%3)
  %5: f32[6, 6] = aten::mm(self=%2, mat2=%3)
  %6: f32[4, 6] = aten::mm(self=%0, mat2=%4)
  %7: f32[4, 6] = aten::mm(self=%6, mat2=%5)
  return (%7)
}
)");
  const auto folding = fold_weights(graph, {1, 2}, all);
  ASSERT_TRUE(folding);
  ASSERT_EQ(folding->groups.size(), 2U);
  EXPECT_EQ(text_of(folding->groups[0].graph), text_of(folding->groups[1].graph));
}

class FoldedRun : public testing::Test {
 protected:
  std::unique_ptr<Executable> build() {
    return graft::build(ir::parse(kHadamard), {}, {.cache = false}, {.frozen = {1, 2, 3}});
  }
  at::Tensor want() const { return at::mm(x, (w * at::mm(b, a)).t()); }
  at::Tensor x = at::rand({4, 6}), w = at::rand({5, 6}), b = at::rand({5, 2}), a = at::rand({2, 6});
};

TEST_F(FoldedRun, FollowsItsWeights) {
  const auto run = build();
  const auto check = [&](const char* when) {
    EXPECT_TRUE(at::allclose(run->run({x, w, b, a})[0], want())) << when;
  };
  check("at first");
  x = at::rand({4, 6});
  check("other data");
  b.mul_(2);
  check("changed in place");
  w = at::rand({5, 6});
  check("another tensor");
  for (int i = 0; i < 20; ++i) {
    // The allocator gives the memory of the last one back, and every fresh tensor is of version 0.
    a = at::Tensor();
    a = at::rand({2, 6});
    check("another tensor in the same place");
  }
}

TEST_F(FoldedRun, TensorsWithoutVersionsAreNotKept) {
  const auto run = build();
  const c10::InferenceMode inference;
  a = at::rand({2, 6});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::allclose(run->run({x, w, b, a})[0], want()));
    a.mul_(2);
  }
}

/// torch's C++ optimizers change parameters through data(), which no version counts.
TEST_F(FoldedRun, AnOptimizerIsNoticed) {
  const auto run = build();
  b.set_requires_grad(true);
  torch::optim::SGD optimizer({b}, 0.5);
  const auto check = [&](const char* when) {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::allclose(run->run({x, w, b, a})[0], want())) << when;
  };
  check("before training");
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    want().sum().backward();
    check("with a gradient");
    optimizer.step();
    check("after a step");
    optimizer.zero_grad();
    check("when the gradient is gone");
  }
  b.set_requires_grad(false);
  check("when training is over");
}

TEST_F(FoldedRun, AGradientFromBeforeIsNoticed) {
  const auto run = build();
  b.set_requires_grad(true);
  want().sum().backward();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::allclose(run->run({x, w, b, a})[0], want()));
  torch::optim::SGD({b}, 0.5).step();
  EXPECT_TRUE(at::allclose(run->run({x, w, b, a})[0], want()));
}

TEST_F(FoldedRun, ThreadsWithOtherWeightsDoNotMeet) {
  const auto run = build();
  const auto other = at::rand({2, 6});
  const auto turn = [&](const at::Tensor& mine) {
    const auto expected = at::mm(x, (w * at::mm(b, mine)).t());
    for (int i = 0; i < 200; ++i)
      if (!at::allclose(run->run({x, w, b, mine})[0], expected)) return false;
    return true;
  };
  bool first = false, second = false;
  std::thread one([&] { first = turn(a); }), two([&] { second = turn(other); });
  one.join(), two.join();
  EXPECT_TRUE(first && second);
}

}  // namespace
}  // namespace graft::passes
