// Maximum flow and minimum cut of a network, by Dinic's algorithm.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace graft::autograd {

class FlowNetwork {
 public:
  /// Stands for an edge that no cut may go through. The sum of all other capacities must stay below it.
  static constexpr int64_t kUnlimited = int64_t{1} << 60;

  explicit FlowNetwork(size_t vertices) : leaving_(vertices) {}

  /// A second edge between the same vertices adds to the first.
  void add_edge(size_t from, size_t to, int64_t capacity);

  /// The most that flows from source to sink, which is the least that must be cut to part them. At least
  /// kUnlimited where they cannot be parted. Call once.
  int64_t maximise(size_t source, size_t sink);

  /// After maximise(): which vertices lie behind the cut. Of all least cuts the one nearest to the sink.
  std::vector<bool> sink_side(size_t sink) const;

 private:
  struct Edge {
    size_t to;
    int64_t left;  // capacity not used yet; its twin, at index ^ 1, has what can be taken back
  };

  bool find_levels(size_t source, size_t sink);
  int64_t push_one_path(size_t source, size_t sink);

  std::vector<Edge> edges_;
  std::vector<std::vector<size_t>> leaving_;  // indices of edges, by vertex
  std::vector<size_t> level_, next_;          // distance from the source; the first edge not tried yet
};

}  // namespace graft::autograd
