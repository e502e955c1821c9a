// Slices that are written one after the other as one cat: what the pass makes of graphs, what it leaves
// alone; before and after give the same results.
#include "passes/written_slices.h"

#include <gtest/gtest.h>

#include "compiled_check.h"
#include "ir/verifier.h"
#include "passes/dead_code.h"

namespace graft::passes {
namespace {

using testing_tools::differs;

std::vector<at::Tensor> results_of(const ir::Graph& graph) {
  at::manual_seed(3);
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) inputs.push_back(testing_tools::numbers_for(input->type()));
  return ref::compile(graph, {})->run(inputs);
}

std::string normal(const ir::Graph& graph) { return ir::to_string(ir::clone(graph)); }

void expect_becomes(const std::string& before, const std::string& expected) {
  auto graph = ir::parse(before);
  const auto want = results_of(graph);
  join_written_slices(graph);
  eliminate_dead_code(graph);
  ir::verify(graph);
  const auto got = results_of(graph);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(differs(got[i], want[i]), "") << "result " << i;
  EXPECT_EQ(normal(graph), normal(ir::parse(expected)));
}
void expect_unchanged(const std::string& text) { expect_becomes(text, text); }

/// As at::pad(x, {1, 2}, "circular") is captured.
TEST(WrittenSlices, ACircularPaddingIsOneCat) {
  expect_becomes(R"(graph(%0 "x": f32[3, 5]) {
  %1: f32[3, 8] = aten::new_empty(self=%0, size=[3, 8])
  %2: f32[3, 8] = aten::slice_scatter(self=%1, src=%0, dim=1, start=1, end=6)
  %3: f32[3, 1]{8, 1} = aten::slice.Tensor(self=%2, dim=1, start=0, end=1)
  %4: f32[3, 1]{8, 1} = aten::slice.Tensor(self=%2, dim=1, start=5, end=6)
  %5: f32[3, 1] = aten::copy(self=%3, src=%4)
  %6: f32[3, 8] = aten::slice_scatter(self=%2, src=%5, dim=1, start=0, end=1)
  %7: f32[3, 2]{8, 1} = aten::slice.Tensor(self=%6, dim=1, start=6, end=8)
  %8: f32[3, 2]{8, 1} = aten::slice.Tensor(self=%6, dim=1, start=1, end=3)
  %9: f32[3, 2] = aten::copy(self=%7, src=%8)
  %10: f32[3, 8] = aten::slice_scatter(self=%6, src=%9, dim=1, start=6, end=8)
  return (%10)
}
)",
                 R"(graph(%0 "x": f32[3, 5]) {
  %1: f32[3, 1]{5, 1} = aten::slice.Tensor(self=%0, dim=1, start=4, end=5)
  %2: f32[3, 2]{5, 1} = aten::slice.Tensor(self=%0, dim=1, start=0, end=2)
  %3: f32[3, 8] = aten::cat(tensors=tensors[%1, %0, %2], dim=1)
  return (%3)
}
)");
}

TEST(WrittenSlices, WhatLiesBetweenStays) {
  expect_becomes(R"(graph(%0 "x": f32[9, 2], %1 "a": f32[2, 2], %2 "b": f32[3, 2]) {
  %3: f32[9, 2] = aten::exp(self=%0)
  %4: f32[9, 2] = aten::slice_scatter(self=%3, src=%1, dim=0, start=-2, end=9)
  %5: f32[9, 2] = aten::slice_scatter(self=%4, src=%2, dim=0, start=1, end=4)
  return (%5)
}
)",
                 R"(graph(%0 "x": f32[9, 2], %1 "a": f32[2, 2], %2 "b": f32[3, 2]) {
  %3: f32[9, 2] = aten::exp(self=%0)
  %4: f32[1, 2] = aten::slice.Tensor(self=%3, dim=0, start=0, end=1)
  %5: f32[3, 2] = aten::slice.Tensor(self=%3, dim=0, start=4, end=7)
  %6: f32[9, 2] = aten::cat(tensors=tensors[%4, %2, %5, %1], dim=0)
  return (%6)
}
)");
}

TEST(WrittenSlices, no_CatOfOneWrite) {
  expect_unchanged(R"(graph(%0 "x": f32[9], %1 "a": f32[2]) {
  %2: f32[9] = aten::exp(self=%0)
  %3: f32[9] = aten::slice_scatter(self=%2, src=%1, dim=0, start=3, end=5)
  return (%3)
}
)");
}

TEST(WrittenSlices, no_CatWhereWritesMeet) {
  expect_unchanged(R"(graph(%0 "x": f32[9], %1 "a": f32[2]) {
  %2: f32[9] = aten::exp(self=%0)
  %3: f32[9] = aten::slice_scatter(self=%2, src=%1, dim=0, start=3, end=5)
  %4: f32[9] = aten::slice_scatter(self=%3, src=%1, dim=0, start=4, end=6)
  return (%4)
}
)");
}

TEST(WrittenSlices, no_CatWhereSomebodySeesWhatLiesBetween) {
  expect_unchanged(R"(graph(%0 "x": f32[9], %1 "a": f32[2]) {
  %2: f32[9] = aten::exp(self=%0)
  %3: f32[9] = aten::slice_scatter(self=%2, src=%1, dim=0, start=3, end=5)
  %4: f32[9] = aten::slice_scatter(self=%3, src=%1, dim=0, start=5, end=7)
  return (%3, %4)
}
)");
}

TEST(WrittenSlices, no_CatOfEverySecondPlaceOrOfAnInput) {
  expect_unchanged(R"(graph(%0 "x": f32[9], %1 "a": f32[2]) {
  %2: f32[9] = aten::exp(self=%0)
  %3: f32[9] = aten::slice_scatter(self=%2, src=%1, dim=0, start=0, end=4, step=2)
  %4: f32[9] = aten::slice_scatter(self=%3, src=%1, dim=0, start=5, end=7)
  %5: f32[9] = aten::slice_scatter(self=%0, src=%1, dim=0, start=3, end=5)
  %6: f32[9] = aten::slice_scatter(self=%5, src=%1, dim=0, start=5, end=7)
  return (%4, %6)
}
)");
}

/// Half of what is read was written.
TEST(WrittenSlices, no_ReadFromTwoPlaces) {
  expect_unchanged(R"(graph(%0 "x": f32[9], %1 "a": f32[2]) {
  %2: f32[9] = aten::exp(self=%0)
  %3: f32[9] = aten::slice_scatter(self=%2, src=%1, dim=0, start=3, end=5)
  %4: f32[2] = aten::slice.Tensor(self=%3, dim=0, start=4, end=6)
  %5: f32[2] = aten::copy(self=%1, src=%4)
  return (%5)
}
)");
}

}  // namespace
}  // namespace graft::passes
