#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "autograd/max_flow.h"

namespace graft::autograd {
namespace {

struct Edge {
  size_t from, to;
  int64_t capacity;
};

int64_t cut_by(const std::vector<Edge>& edges, const std::vector<bool>& behind) {
  int64_t sum = 0;
  for (const auto& edge : edges)
    if (!behind[edge.from] && behind[edge.to]) sum += edge.capacity;
  return sum;
}

TEST(MaxFlow, TheTextbooksExample) {
  const std::vector<Edge> edges{{0, 1, 16}, {0, 2, 13}, {1, 2, 10}, {2, 1, 4},  {1, 3, 12},
                                {3, 2, 9},  {2, 4, 14}, {4, 3, 7},  {3, 5, 20}, {4, 5, 4}};
  FlowNetwork network(6);
  for (const auto& edge : edges) network.add_edge(edge.from, edge.to, edge.capacity);
  EXPECT_EQ(network.maximise(0, 5), 23);
  EXPECT_EQ(cut_by(edges, network.sink_side(5)), 23);
}

TEST(MaxFlow, OfEqualCutsTheOneNearestToTheSink) {
  FlowNetwork network(4);
  for (size_t i = 0; i < 3; ++i) network.add_edge(i, i + 1, 5);
  EXPECT_EQ(network.maximise(0, 3), 5);
  EXPECT_EQ(network.sink_side(3), (std::vector<bool>{false, false, false, true}));
}

TEST(MaxFlow, NoCutThroughUnlimitedEdges) {
  FlowNetwork network(3);
  network.add_edge(0, 1, FlowNetwork::kUnlimited);
  network.add_edge(1, 2, FlowNetwork::kUnlimited);
  EXPECT_GE(network.maximise(0, 2), FlowNetwork::kUnlimited);
}

TEST(MaxFlow, NoFlowWithoutAPath) {
  FlowNetwork network(3);
  network.add_edge(2, 1, 4);
  network.add_edge(0, 0, 4);
  EXPECT_EQ(network.maximise(0, 2), 0);
  EXPECT_EQ(network.sink_side(2), (std::vector<bool>{false, false, true}));
}

TEST(MaxFlow, ALongPathNeedsNoDeepStack) {
  constexpr size_t kLength = 200000;
  FlowNetwork network(kLength);
  for (size_t i = 0; i + 1 < kLength; ++i) network.add_edge(i, i + 1, 7);
  EXPECT_EQ(network.maximise(0, kLength - 1), 7);
}

// The model: try all subsets of vertices as the sink's side, and take the cheapest.
RC_GTEST_PROP(MaxFlow, IsTheCheapestOfAllCuts, ()) {
  const size_t vertices = *rc::gen::inRange<size_t>(2, 8);
  const auto vertex = rc::gen::inRange<size_t>(0, vertices);
  const auto edges = *rc::gen::container<std::vector<Edge>>(
      rc::gen::map(rc::gen::tuple(vertex, vertex, rc::gen::inRange<int64_t>(0, 20)),
                   [](const auto& t) { return Edge{std::get<0>(t), std::get<1>(t), std::get<2>(t)}; }));
  FlowNetwork network(vertices);
  for (const auto& edge : edges) network.add_edge(edge.from, edge.to, edge.capacity);
  int64_t cheapest = FlowNetwork::kUnlimited;
  size_t fewest = vertices;  // vertices behind a cheapest cut
  for (size_t subset = 0; subset < size_t{1} << vertices; ++subset) {
    if (subset & 1 || !(subset >> (vertices - 1) & 1)) continue;
    std::vector<bool> behind(vertices);
    size_t count = 0;
    for (size_t v = 0; v < vertices; ++v) count += behind[v] = subset >> v & 1;
    const auto cost = cut_by(edges, behind);
    if (cost > cheapest) continue;
    fewest = cost < cheapest ? count : std::min(fewest, count);
    cheapest = cost;
  }
  RC_ASSERT(network.maximise(0, vertices - 1) == cheapest);
  const auto behind = network.sink_side(vertices - 1);
  RC_ASSERT(cut_by(edges, behind) == cheapest);
  RC_ASSERT(size_t(std::count(behind.begin(), behind.end(), true)) == fewest);
}

}  // namespace
}  // namespace graft::autograd
