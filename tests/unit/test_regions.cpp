// Where a graph is cut into blocks.
#include <gtest/gtest.h>

#include "ir/parser.h"
#include "runtime/regional_executable.h"

namespace graft {
namespace {

/// Nodes of each region.
std::vector<size_t> sizes(const std::string& text) {
  std::vector<size_t> found;
  for (const auto& region : cut_into_regions(ir::parse(text)).regions)
    found.push_back(region.graph.nodes().size());
  return found;
}

TEST(Regions, OnePerBlock) {
  EXPECT_EQ(sizes(R"(graph(%0 "x": f32[4]) {
  %1: f32[4] = aten::exp(self=%0)  # embed
  %2: f32[4] = aten::sin(self=%1)  # layers.0.a
  %3: f32[4] = aten::cos(self=%2)  # layers.0.b
  %4: f32[4] = aten::sin(self=%3)  # layers.1.a
  %5: f32[4] = aten::cos(self=%4)  # head
  return (%5)
}
)"),
            (std::vector<size_t>{1, 2, 2}));
}

TEST(Regions, AFewNodesOfAnotherBlockStayWhereTheyAreUsed) {
  EXPECT_EQ(sizes(R"(graph(%0 "x": f32[4]) {
  %1: f32[4] = aten::exp(self=%0)  # layers.1
  %2: f32[4] = aten::sin(self=%0)  # layers.0
  %3: f32[4] = aten::mul.Tensor(self=%1, other=%2)  # layers.1
  %4: f32[4] = aten::cos(self=%0)  # layers.0
  %5: f32[4] = aten::mul.Tensor(self=%3, other=%4)  # layers.1
  %6: f32[4] = aten::sin(self=%5)  # layers.0
  %7: f32[4] = aten::cos(self=%6)  # layers.0
  return (%7)
}
)"),
            (std::vector<size_t>{5, 2}));
}

TEST(Regions, no_whole_block_amid_another) {
  EXPECT_EQ(sizes(R"(graph(%0 "x": f32[4]) {
  %1: f32[4] = aten::exp(self=%0)  # layers.1
  %2: f32[4] = aten::sin(self=%1)  # layers.0
  %3: f32[4] = aten::cos(self=%2)  # layers.0
  %4: f32[4] = aten::exp(self=%3)  # layers.1
  return (%4)
}
)"),
            (std::vector<size_t>{1, 2, 1}));
}

// --- results that are written into inputs

using Pairs = std::vector<std::pair<size_t, size_t>>;

/// What each region may write in place: (its result, its input).
std::vector<Pairs> pairs(const std::string& text, const std::vector<InPlace>& whole) {
  const auto graph = ir::parse(text);
  std::vector<Pairs> found;
  for (const auto& region : in_place_by_region(graph, cut_into_regions(graph), whole)) {
    found.emplace_back();
    for (const auto& pair : region) found.back().emplace_back(pair.result, pair.input);
  }
  return found;
}

TEST(Regions, TheLastToReadAnInputWritesIntoIt) {
  EXPECT_EQ(pairs(R"(graph(%0 "x": f32[4], %1 "w": f32[4]) {
  %2: f32[4] = aten::mul.Tensor(self=%0, other=%1)  # layers.0
  %3: f32[4] = aten::sin(self=%2)  # layers.1
  %4: f32[4] = aten::sub.Tensor(self=%1, other=%3)  # layers.1
  return (%3, %4)
}
)",
                  {{1, 1}}),
            (std::vector<Pairs>{{}, {{1, 1}}}));
}

TEST(Regions, no_writing_before_another_region_has_read) {
  EXPECT_EQ(pairs(R"(graph(%0 "x": f32[4], %1 "w": f32[4]) {
  %2: f32[4] = aten::sub.Tensor(self=%1, other=%0)  # layers.0
  %3: f32[4] = aten::sin(self=%1)  # layers.1
  return (%2, %3)
}
)",
                  {{0, 1}}),
            (std::vector<Pairs>{{}, {}}));
}

TEST(Regions, no_writing_under_a_view_from_another_region) {
  EXPECT_EQ(pairs(R"(graph(%0 "x": f32[2, 2], %1 "w": f32[2, 2]) {
  %2: f32[2, 2]{1, 2} = aten::t(self=%1)  # layers.0
  %3: f32[2, 2] = aten::mm(self=%0, mat2=%2)  # layers.0
  %4: f32[2, 2] = aten::add.Tensor(self=%3, other=%2)  # layers.1
  %5: f32[2, 2] = aten::sub.Tensor(self=%1, other=%4)  # layers.1
  return (%5)
}
)",
                  {{0, 1}}),
            (std::vector<Pairs>{{}, {}}));
}

TEST(Regions, no_writing_into_what_is_given_back) {
  EXPECT_EQ(pairs(R"(graph(%0 "x": f32[4]) {
  %1: f32[2, 2] = aten::view(self=%0, size=[2, 2])  # layers.0
  %2: f32[4] = aten::sin(self=%0)  # layers.0
  return (%1, %2)
}
)",
                  {{1, 0}}),
            (std::vector<Pairs>{{}}));
}

}  // namespace
}  // namespace graft
