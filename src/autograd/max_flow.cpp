#include "autograd/max_flow.h"

#include <algorithm>
#include <limits>

namespace graft::autograd {
namespace {

constexpr size_t kUnreached = std::numeric_limits<size_t>::max();

}  // namespace

void FlowNetwork::add_edge(size_t from, size_t to, int64_t capacity) {
  if (from == to || capacity <= 0) return;
  leaving_[from].push_back(edges_.size());
  edges_.push_back({to, capacity});
  leaving_[to].push_back(edges_.size());
  edges_.push_back({from, 0});
}

bool FlowNetwork::find_levels(size_t source, size_t sink) {
  level_.assign(leaving_.size(), kUnreached);
  level_[source] = 0;
  std::vector<size_t> queue{source};
  for (size_t i = 0; i < queue.size() && level_[sink] == kUnreached; ++i)
    for (const size_t e : leaving_[queue[i]]) {
      const auto& edge = edges_[e];
      if (edge.left == 0 || level_[edge.to] != kUnreached) continue;
      level_[edge.to] = level_[queue[i]] + 1;
      queue.push_back(edge.to);
    }
  return level_[sink] != kUnreached;
}

/// Walks from level to level, backs out of dead ends, and never tries an edge again that led into one. No
/// recursion: a path may be as long as the graph.
int64_t FlowNetwork::push_one_path(size_t source, size_t sink) {
  std::vector<size_t> path;
  for (size_t at = source; at != sink;) {
    const auto& edges = leaving_[at];
    size_t& next = next_[at];
    while (next < edges.size() &&
           (edges_[edges[next]].left == 0 || level_[edges_[edges[next]].to] != level_[at] + 1))
      ++next;
    if (next < edges.size()) {
      path.push_back(edges[next]);
      at = edges_[edges[next]].to;
    } else {
      if (path.empty()) return 0;
      at = edges_[path.back() ^ 1].to;
      path.pop_back();
      ++next_[at];
    }
  }
  int64_t pushed = kUnlimited;
  for (const size_t e : path) pushed = std::min(pushed, edges_[e].left);
  for (const size_t e : path) {
    edges_[e].left -= pushed;
    edges_[e ^ 1].left += pushed;
  }
  return pushed;
}

int64_t FlowNetwork::maximise(size_t source, size_t sink) {
  int64_t flow = 0;
  while (find_levels(source, sink)) {
    next_.assign(leaving_.size(), 0);
    while (const int64_t pushed = push_one_path(source, sink)) {
      flow += pushed;
      if (flow >= kUnlimited) return flow;
    }
  }
  return flow;
}

std::vector<bool> FlowNetwork::sink_side(size_t sink) const {
  std::vector<bool> behind(leaving_.size());
  behind[sink] = true;
  std::vector<size_t> stack{sink};
  while (!stack.empty()) {
    const size_t at = stack.back();
    stack.pop_back();
    for (const size_t e : leaving_[at]) {
      const size_t from = edges_[e].to;  // the twin of an edge that arrives here
      if (edges_[e ^ 1].left == 0 || behind[from]) continue;
      behind[from] = true;
      stack.push_back(from);
    }
  }
  return behind;
}

}  // namespace graft::autograd
