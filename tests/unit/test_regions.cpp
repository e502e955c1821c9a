// Where a graph is cut into blocks.
#include <gtest/gtest.h>

#include "compiler/regions.h"
#include "ir/parser.h"

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

}  // namespace
}  // namespace graft
