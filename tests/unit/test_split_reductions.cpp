// Reductions that several threads share: the same numbers as ATen's, and the same to the last bit whatever
// the number of threads.
#include <gtest/gtest.h>

#include "compiled_check.h"
#include "compiler/lower.h"
#include "passes/pipeline.h"
#include "targets/cpu/plan.h"
#include "targets/targets.h"
#include "threads.h"

namespace graft::cpu {
namespace {

using testing_tools::Threads;

/// The plans of the graph's kernels.
std::vector<Plan> plans_of(const std::string& text) {
  auto graph = ir::parse(text);
  passes::run_passes(passes_for(target_for({})), graph);
  const auto schedule = codegen::schedule(graph, target_for({}).limits());
  std::vector<Plan> plans;
  plans.reserve(schedule.steps.size());
  for (const auto& step : schedule.steps)
    if (!step.external) plans.push_back(plan(step.kernel, host()));
  return plans;
}

/// One kernel, dealt out in parts; right, and equal with 1, 2 and 3 threads.
void expect_split(const std::string& text) {
  const auto plans = plans_of(text);
  ASSERT_EQ(plans.size(), 1) << text;
  EXPECT_GT(plans[0].parts, 1) << text;
  std::vector<at::Tensor> first;
  for (const int threads : {1, 2, 3}) {
    const Threads set(threads);
    const auto both = testing_tools::expect_same_both_ways(text);
    if (first.empty()) first = both.compiled;
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_TRUE(at::equal(first[i], both.compiled[i]))
          << "result " << i << " by " << threads << " threads of\n"
          << text;
  }
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

// 100003 is prime: no part, vector or row ends where another does.
TEST(SplitReductions, ToOneNumber) {
  for (const char* call :
       {"aten::sum(self=%0)", "aten::mean(self=%0)", "aten::max(self=%0)", "aten::min(self=%0)",
        "aten::var.correction(self=%0, dim=[0], correction=1, keepdim=false)",
        "aten::std.correction(self=%0, dim=None, correction=0, keepdim=false)"})
    for (const char* dtype : {"f32", "f64", "bf16"})
      expect_split(
          replaced(std::string("graph(%0 \"x\": T[100003]) {\n  %1: T[] = ") + call + "\n  return (%1)\n}\n",
                   "T", dtype));
}

TEST(SplitReductions, Places) {
  for (const char* op : {"argmax", "argmin"}) {
    expect_split(replaced(
        "graph(%0 \"x\": f32[100003]) {\n  %1: i64[] = aten::OP(self=%0)\n  return (%1)\n}\n", "OP", op));
    // Of equals the first counts, in whichever part it is.
    expect_split(replaced(R"(graph(%0 "x": f32[3, 100003]) {
  %1: f32[3, 100003] = aten::sign(self=%0)
  %2: i64[3] = aten::OP(self=%1, dim=1)
  return (%2)
}
)",
                          "OP", op));
  }
}

TEST(SplitReductions, Flags) {
  for (const char* op : {"any", "all"})
    expect_split(replaced(R"(graph(%0 "x": f32[100003]) {
  %1: bool[100003] = aten::gt.Scalar(self=%0, other=4.5)
  %2: bool[] = aten::OP(self=%1)
  return (%2)
}
)",
                          "OP", op));
}

TEST(SplitReductions, WholeNumbers) {
  expect_split("graph(%0 \"x\": i64[100003]) {\n  %1: i64[] = aten::sum(self=%0)\n  return (%1)\n}\n");
}

TEST(SplitReductions, SeveralPhasesOfFewRows) {
  for (const char* op : {"_softmax", "_log_softmax"})
    expect_split(replaced(R"(graph(%0 "x": f32[2, 50021]) {
  %1: f32[2, 50021] = aten::OP(self=%0, dim=-1, half_to_float=false)
  return (%1)
}
)",
                          "OP", op));
  expect_split(R"(graph(%0 "x": f32[2, 50021], %1 "w": f32[50021], %2 "b": f32[50021]) {
  %3: f32[2, 50021], %4: f32[2, 1], %5: f32[2, 1] = aten::native_layer_norm(input=%0, normalized_shape=[50021], weight=%1, bias=%2, eps=1e-05)
  return (%3, %4, %5)
}
)");
}

// Each part of a later phase combines what all parts before it left: once that was most of the work.
TEST(SplitReductions, SeveralPhasesOfColumns) {
  for (const char* op : {"_softmax", "_log_softmax"})
    expect_split(replaced(R"(graph(%0 "x": f32[1024, 201]) {
  %1: f32[1024, 201] = aten::OP(self=%0, dim=0, half_to_float=false)
  return (%1)
}
)",
                          "OP", op));
}

TEST(SplitReductions, FewColumns) {
  // 21 columns: a whole vector and some over; 5: no whole one.
  for (const char* columns : {"5", "21", "64"})
    expect_split(replaced(R"(graph(%0 "x": f32[20011, C]) {
  %1: f32[C] = aten::sum.dim_IntList(self=%0, dim=[0])
  %2: f32[C] = aten::amax(self=%0, dim=[0])
  %3: i64[C] = aten::argmax(self=%0, dim=0)
  return (%1, %2, %3)
}
)",
                          "C", columns));
  expect_split(R"(graph(%0 "x": f32[20011, 21]) {
  %1: f32[20011, 21] = aten::_softmax(self=%0, dim=0, half_to_float=false)
  return (%1)
}
)");
}

TEST(SplitReductions, OverDimensionsWithAKeptOneBetween) {
  for (const char* shape : {"300, 3, 1000", "3, 3, 100003", "20011, 3, 20"})
    expect_split(replaced(R"(graph(%0 "x": f32[SHAPE]) {
  %1: f32[3] = aten::sum.dim_IntList(self=%0, dim=[0, 2])
  %2: f32[3] = aten::amax(self=%0, dim=[0, 2])
  return (%1, %2)
}
)",
                          "SHAPE", shape));
}

TEST(SplitReductions, WhatFollowsIsStoredOnce) {
  expect_split(R"(graph(%0 "x": f32[100003], %1 "y": f32[]) {
  %2: f32[100003] = aten::mul.Tensor(self=%0, other=%0)
  %3: f32[] = aten::sum(self=%2)
  %4: f32[] = aten::sqrt(self=%3)
  %5: f32[] = aten::add.Tensor(self=%4, other=%1, alpha=1)
  %6: f32[100003] = aten::div.Tensor(self=%0, other=%5)
  return (%5, %6)
}
)");
}

TEST(SplitReductions, AnIndexOutsideItsTableIsSeen) {
  auto graph = ir::parse(R"(graph(%0 "table": f32[7], %1 "places": i64[100003]) {
  %2: f32[100003] = aten::index_select(self=%0, dim=0, index=%1)
  %3: f32[] = aten::sum(self=%2)
  return (%3)
}
)");
  const auto fast = build(std::move(graph), {}, {.cache = false});
  auto places = at::zeros({100003}, at::kLong);
  EXPECT_EQ(fast->run({at::ones({7}), places})[0].item<float>(), 100003);
  places[100001] = 7;
  EXPECT_ANY_THROW(fast->run({at::ones({7}), places}));
}

TEST(SplitReductions, no_parts_of_what_is_small_or_has_rows_enough) {
  for (const char* shape : {"1000", "4000, 512"}) {
    const auto plans = plans_of(replaced(R"(graph(%0 "x": f32[SHAPE]) {
  %1: f32[SHAPE] = aten::_softmax(self=%0, dim=-1, half_to_float=false)
  return (%1)
}
)",
                                         "SHAPE", shape));
    ASSERT_EQ(plans.size(), 1);
    EXPECT_EQ(plans[0].parts, 1);
    EXPECT_EQ(plans[0].stages, 1);
  }
}

}  // namespace
}  // namespace graft::cpu
