// The seam between the compiler and its targets: graphs run on a target that is not the CPU's, and the list
// of targets says what it has not.
#include <gtest/gtest.h>

#include "aten_target.h"
#include "compiler/build.h"
#include "compiler/lower.h"
#include "graft/error.h"
#include "ir/parser.h"
#include "targets/targets.h"

namespace graft {
namespace {

const aten_target::AtenTarget aten;

std::vector<at::Tensor> run_on_aten(const std::string& text, const std::vector<at::Tensor>& inputs) {
  return build_for(aten, ir::parse(text), {}, {.cache = false})->run(inputs);
}

std::vector<at::Tensor> reference(const std::string& text, const std::vector<at::Tensor>& inputs) {
  return ref::interpret(ir::parse(text), inputs, {});
}

constexpr const char* block = R"(graph(%0 "x": f32[6, 8], %1 "w": f32[8, 8], %2 "b": f32[8]) {
  %3: f32[6, 8] = aten::addmm(self=%2, mat1=%0, mat2=%1)
  %4: f32[6, 8] = aten::tanh(self=%3)
  %5: f32[6, 8] = aten::mul.Tensor(self=%4, other=%0)
  %6: f32[6, 8] = aten::_softmax(self=%5, dim=1, half_to_float=false)
  %7: f32[6, 8] = aten::mm(self=%6, mat2=%1)
  %8: f32[8] = aten::sum.dim_IntList(self=%7, dim=[0])
  return (%6, %7, %8)
}
)";

TEST(Targets, AnotherTargetGivesTheSameResults) {
  const auto x = at::randn({6, 8}), w = at::randn({8, 8}), b = at::randn({8});
  const auto got = run_on_aten(block, {x, w, b}), want = reference(block, {x, w, b});
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::allclose(got[i], want[i], 1e-5, 1e-6)) << i;
}

TEST(Targets, ItsLimitsAreWhatFusionGoesBy) {
  const auto kernels = [](const Target& target) {
    size_t count = 0;
    for (const auto& step : lower(ir::parse(block), target).schedule.steps) count += !step.external;
    return count;
  };
  EXPECT_GT(kernels(aten), kernels(target_for({})));
}

TEST(Targets, AFailureThatIsReadAtTheEndIsAnErrorThatNamesTheAction) {
  constexpr const char* text = R"(graph(%0 "table": f32[4, 3], %1 "ids": i64[2]) {
  %2: f32[2, 3] = aten::embedding(weight=%0, indices=%1)
  %3: f32[2, 3] = aten::mul.Tensor(self=%2, other=%2)
  return (%3)
}
)";
  const auto run = build_for(aten, ir::parse(text), {}, {.cache = false});
  const auto table = at::randn({4, 3});
  const auto good = at::tensor({1, 3}, at::kLong), bad = at::tensor({1, 9}, at::kLong);
  EXPECT_NO_THROW(run->run({table, good}));
  try {
    run->run({table, bad});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("out of range, in"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("embedding"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(at::equal(run->run({table, good})[0], table.index_select(0, good).square()));
}

TEST(Targets, ADeviceWithoutOneIsAnErrorThatNamesThoseThereAre) {
  try {
    target_for({ir::Device::Kind::meta, 0});
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("no target for meta"), std::string::npos) << text;
    EXPECT_NE(text.find("cpu"), std::string::npos) << text;
  }
  EXPECT_THROW(target_of(ir::parse(R"(graph(%0 "x": f32[2]@cuda:0, %1 "y": f32[2]@cuda:1) {
  return (%0, %1)
}
)")),
               Error);
}

TEST(Targets, WhatIsOnTheCpuInAGraphForAnotherDeviceIsACall) {
  const auto graph = ir::parse(R"(graph(%0 "x": f32[8]@cuda:0, %1 "scale": f32[], %2 "y": f32[8]) {
  %3: f32[8]@cuda:0 = aten::mul.Tensor(self=%0, other=%1)
  %4: f32[8] = aten::exp(self=%2)
  %5: f32[8]@cuda:0 = aten::_to_copy(self=%4, device=@cuda:0)
  %6: f32[8]@cuda:0 = aten::add.Tensor(self=%3, other=%5)
  %7: f32[8]@cuda:0 = aten::tanh(self=%6)
  return (%7)
}
)");
  EXPECT_EQ(ir::device_of(graph), (ir::Device{ir::Device::Kind::cuda, 0}));
  const auto& target = target_of(graph);
  EXPECT_EQ(target.name(), "cuda");
  const auto lowered = lower_core(ir::clone(graph), target);
  std::vector<std::string> calls;
  size_t kernels = 0;
  for (const auto& step : lowered.schedule.steps)
    if (step.external)
      calls.push_back(step.external->op());
    else
      ++kernels;
  EXPECT_EQ(calls, (std::vector<std::string>{"aten::mul.Tensor", "aten::exp", "aten::_to_copy"}));
  EXPECT_EQ(kernels, 1U);
}

TEST(Targets, ALevelThatIsNotTheTargetsIsAnError) {
  EXPECT_THROW(emit(lower(ir::parse(block), aten), aten, "llvm"), UsageError);
  EXPECT_THROW(emit(lower(ir::parse(block), aten), aten, "nonsense"), UsageError);
}

}  // namespace
}  // namespace graft
