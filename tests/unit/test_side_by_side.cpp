// Kernels that are launched as one (codegen/side_by_side): which may be, in which order the steps come, and
// what programs of such launches compute, over a target that runs the last kernel of a launch first.
#include <gtest/gtest.h>

#include "aten_target.h"
#include "codegen/side_by_side.h"
#include "compiled_check.h"
#include "compiler/build.h"
#include "compiler/lower.h"
#include "graft/error.h"
#include "ir/parser.h"

namespace graft::codegen {
namespace {

const aten_target::AtenTarget aten;

/// The steps in their order: what calls and the last nodes of kernels are, without "aten::"; "+" joins a
/// launch.
std::string steps_of(const std::string& text) {
  const auto lowered = lower(ir::parse(text), aten);
  std::string all;
  for (const auto& step : lowered.schedule.steps) {
    const auto& op = step.external ? step.external->op() : step.nodes.back()->op();
    all += (all.empty() ? "" : step.with_last ? " + " : ", ") + op.substr(op.find("::") + 2);
  }
  return all;
}

/// The same results as the graph over ATen, twice.
void expect_right(const std::string& text, const std::vector<at::Tensor>& inputs) {
  const auto run = build_for(aten, ir::parse(text), {}, {.cache = false});
  const auto want = ref::interpret(ir::parse(text), inputs, {});
  for (int call = 0; call < 2; ++call) {
    const auto got = run->run(inputs);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::allclose(got[i], want[i], 1e-5, 1e-6)) << i;
  }
}

TEST(SideBySide, KernelsThatDoNotNeedEachOtherAreOneLaunch) {
  const std::string text = R"(graph(%0 "x": f32[6, 8], %1 "y": f32[4, 5], %2 "w": f32[8, 8]) {
  %3: f32[6, 8] = aten::tanh(self=%0)
  %4: f32[6, 8] = aten::mm(self=%3, mat2=%2)
  %5: f32[4, 5] = aten::sin(self=%1)
  return (%4, %5)
}
)";
  EXPECT_EQ(steps_of(text), "tanh + sin, mm");
  expect_right(text, {at::randn({6, 8}), at::randn({4, 5}), at::randn({8, 8})});
}

TEST(SideBySide, OneThatNobodyNeedsYetWaitsForOthers) {
  const std::string text = R"(graph(%0 "x": f32[6, 8], %1 "y": f32[8, 5], %2 "w": f32[8, 8]) {
  %3: f32[8, 5] = aten::sin(self=%1)
  %4: f32[6, 8] = aten::mm(self=%0, mat2=%2)
  %5: f32[6, 8] = aten::tanh(self=%4)
  %6: f32[6, 5] = aten::mm(self=%5, mat2=%3)
  return (%6)
}
)";
  EXPECT_EQ(steps_of(text), "mm, sin + tanh, mm");
  expect_right(text, {at::randn({6, 8}), at::randn({8, 5}), at::randn({8, 8})});
}

TEST(SideBySide, no_OneThatNeedsTheOther) {
  const std::string text = R"(graph(%0 "x": f32[6, 8]) {
  %1: f32[6] = aten::sum.dim_IntList(self=%0, dim=[1])
  %2: f32[8] = aten::sum.dim_IntList(self=%0, dim=[0])
  %3: f32[] = aten::sum(self=%2)
  %4: f32[6] = aten::mul.Tensor(self=%1, other=%3)
  return (%4)
}
)";
  for (const auto& step : lower(ir::parse(text), aten).schedule.steps)
    if (step.with_last)
      for (const auto* node : step.nodes) EXPECT_NE(node->op(), "aten::mul.Tensor");
  expect_right(text, {at::randn({6, 8})});
}

TEST(SideBySide, no_OneThatCanFail) {
  const std::string text = R"(graph(%0 "table": f32[4, 3], %1 "ids": i64[2], %2 "y": f32[4, 5]) {
  %3: f32[2, 3] = aten::embedding(weight=%0, indices=%1)
  %4: f32[4, 5] = aten::sin(self=%2)
  return (%3, %4)
}
)";
  EXPECT_EQ(steps_of(text).find('+'), std::string::npos);
  const auto run = build_for(aten, ir::parse(text), {}, {.cache = false});
  EXPECT_THROW(run->run({at::randn({4, 3}), at::tensor({1, 9}, at::kLong), at::randn({4, 5})}), Error);
}

/// What is written in place is not read by another kernel of the same launch.
TEST(SideBySide, no_InputThatAnotherOfTheLaunchReads) {
  const std::string text = R"(graph(%0 "x": f32[6, 8], %1 "y": f32[4, 8]) {
  %2: f32[6, 8] = aten::tanh(self=%0)
  %3: f32[8] = aten::select.int(self=%0, dim=0, index=5)
  %4: f32[4, 8] = aten::mul.Tensor(self=%1, other=%3)
  return (%2, %4)
}
)";
  ASSERT_EQ(steps_of(text), "tanh + mul.Tensor");
  const auto run =
      build_for(aten, ir::parse(text), {}, {.cache = false}, {.in_place = {{.result = 0, .input = 0}}});
  for (int call = 0; call < 2; ++call) {
    const auto x = at::randn({6, 8}), y = at::randn({4, 8});
    const auto want = ref::interpret(ir::parse(text), {x.clone(), y}, {});
    const auto got = run->run({x, y});
    EXPECT_TRUE(at::allclose(got[0], want[0])) << call;
    EXPECT_TRUE(at::allclose(got[1], want[1])) << call;
  }
}

/// Memory of what the kernels of a launch read is in use until all of them are done.
TEST(SideBySide, MemoryIsNotUsedAgainWithinALaunch) {
  std::string text = "graph(%0 \"x\": f32[64, 8], %1 \"w\": f32[8, 8]) {\n";
  int next = 2;
  std::vector<int> results;
  const auto add = [&](const std::string& type, const std::string& call) {
    text += "  %" + std::to_string(next) + ": " + type + " = " + call + "\n";
    return next++;
  };
  for (int i = 0; i < 6; ++i) {
    const auto product = std::to_string(add("f32[64, 8]", "aten::mm(self=%0, mat2=%1)"));
    const auto sine = std::to_string(add("f32[64, 8]", "aten::sin(self=%" + product + ")"));
    results.push_back(add("f32[64, 8]", "aten::mm(self=%" + sine + ", mat2=%1)"));
  }
  text += "  return (";
  for (size_t i = 0; i < results.size(); ++i) text += (i ? ", %" : "%") + std::to_string(results[i]);
  text += ")\n}\n";
  expect_right(text, {at::randn({64, 8}), at::randn({8, 8})});
}

// --- rows that are written at places that are data

struct RowDevice : aten_target::AtenDevice {
  mutable std::vector<size_t> writes;  ///< of each launch
  /// The last first: on a device they are written at the same time.
  void write_rows(std::span<const RowWrite> all, runtime::RunContext& context) const override {
    writes.push_back(all.size());
    for (size_t i = all.size(); i-- > 0;) AtenDevice::write_rows(all.subspan(i, 1), context);
  }
};

/// How many rows each launch writes when a graph over these inputs changes k, v and w in place. The results
/// are those over ATen.
std::vector<size_t> launches_of(const std::string& lines) {
  const std::string text =
      R"(graph(%0 "k": f32[9, 4], %1 "v": f32[9, 4], %2 "w": f32[9, 4], %3 "i": i64[2], %4 "j": i64[2], %5 "x": f32[2, 4]) {
)" + lines +
      R"(  return (%7, %8, %9)
}
)";
  const RowDevice device;
  const aten_target::AtenTarget target(&device);
  const auto run =
      build_for(target, ir::parse(text), {}, {.cache = false}, {.in_place = {{0, 0}, {1, 1}, {2, 2}}});
  const auto i = at::tensor({3, 5}, at::kLong), j = at::tensor({0, 8}, at::kLong);
  for (const bool in_place : {false, true, true}) {
    const std::vector<at::Tensor> inputs = {at::randn({9, 4}), at::randn({9, 4}), at::randn({9, 4}), i, j,
                                            at::randn({2, 4})};
    const auto want = ref::interpret(ir::parse(text), inputs, {});
    const auto got = run->run(inputs, in_place);
    for (size_t k = 0; k < want.size(); ++k) EXPECT_TRUE(at::equal(got[k], want[k])) << k << text;
  }
  return device.writes;
}

/// Of a step of three caches, the rows of the second and of the third, and where the second's go.
std::vector<size_t> launches_of_rows(const std::string& second_index, const std::string& second_rows = "%6",
                                     const std::string& third_rows = "%6",
                                     const std::string& before_second = "", const std::string& before = "",
                                     const std::string& first_rows = "%6") {
  return launches_of(
      "  %6: f32[2, 4] = aten::sin(self=%5)\n" + before +
      "  %7: f32[9, 4] = aten::index_copy(self=%0, dim=0, index=%3, source=" + first_rows + ")\n" +
      before_second + "  %8: f32[9, 4] = aten::index_copy(self=%1, dim=0, index=" + second_index +
      ", source=" + second_rows +
      ")\n  %9: f32[9, 4] = aten::index_copy(self=%2, dim=0, index=%3, source=" + third_rows + ")\n");
}

using Sizes = std::vector<size_t>;

TEST(SideBySide, RowsAtTheSamePlacesAreOneLaunch) { EXPECT_EQ(launches_of_rows("%3"), (Sizes{3, 3})); }

TEST(SideBySide, no_RowsAtOtherPlaces) {
  for (const auto count : launches_of_rows("%4")) EXPECT_EQ(count, 1u);
}

/// Rows that an update takes from what another one has made: as they are, through a view, and where the two
/// are not neighbours.
TEST(SideBySide, no_RowsOfWhatAnotherUpdateMakes) {
  const std::string first = "aten::slice.Tensor(self=%7, dim=0, start=2, end=4, step=1)";
  const std::string second = "aten::slice.Tensor(self=%8, dim=0, start=4, end=6, step=1)";
  EXPECT_EQ(launches_of_rows("%3", "%10", "%6", "  %10: f32[2, 4] = " + first + "\n"), (Sizes{1, 2, 1, 2}));
  EXPECT_EQ(
      launches_of("  %6: f32[2, 4] = aten::sin(self=%5)\n"
                  "  %7: f32[9, 4] = aten::index_copy(self=%0, dim=0, index=%3, source=%6)\n"
                  "  %8: f32[9, 4] = aten::index_copy(self=%1, dim=0, index=%3, source=%6)\n"
                  "  %10: f32[2, 4] = " +
                  first + "\n  %9: f32[9, 4] = aten::index_copy(self=%2, dim=0, index=%3, source=%10)\n"),
      (Sizes{2, 1, 2, 1}));
  EXPECT_EQ(
      launches_of("  %6: f32[2, 4] = aten::sin(self=%5)\n"
                  "  %7: f32[9, 4] = aten::index_copy(self=%0, dim=0, index=%3, source=%6)\n"
                  "  %8: f32[9, 4] = aten::index_copy(self=%1, dim=0, index=%3, source=%6)\n"
                  "  %10: f32[2, 4] = " +
                  second + "\n  %9: f32[9, 4] = aten::index_copy(self=%2, dim=0, index=%3, source=%10)\n"),
      (Sizes{2, 1, 2, 1}));
}

/// Rows that an update takes from what the next one writes over.
TEST(SideBySide, no_RowsOfWhatAnotherUpdateWritesOver) {
  EXPECT_EQ(launches_of_rows("%3", "%5", "%5", "",
                             "  %10: f32[2, 4] = aten::slice.Tensor(self=%1, dim=0, start=3, end=5, "
                             "step=1)\n",
                             "%10"),
            (Sizes{1, 2, 1, 2}));
  EXPECT_EQ(launches_of_rows("%3", "%5", "%5", "",
                             "  %10: f32[2, 4] = aten::slice.Tensor(self=%2, dim=0, start=3, end=5, "
                             "step=1)\n",
                             "%10"),
            (Sizes{2, 1, 2, 1}));
}

}  // namespace
}  // namespace graft::codegen
