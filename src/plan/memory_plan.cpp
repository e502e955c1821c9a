// Greedy with lifetimes, as the planners of TFLite and TVM: take the buffers in some order, and put each into
// the smallest gap that the buffers placed before it, and alive with it, leave. No one order is best for all
// programs, so a second is tried where the first leaves more than a hundredth over the lower bound.
#include "plan/memory_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>

namespace graft::plan {
namespace {

struct Placed {
  int64_t begin, end;  // in the arena
  size_t first, last;  // in time
};

int64_t rounded_up(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Checks what was asked for and rounds the sizes.
std::vector<BufferLife> checked(std::span<const BufferLife> buffers, int64_t alignment) {
  std::vector<BufferLife> lives(buffers.begin(), buffers.end());
  int64_t sum = 0;
  for (size_t i = 0; i < lives.size(); ++i) {
    auto& life = lives[i];
    const auto refuse = [&](const char* why) {
      throw std::invalid_argument("[memory plan] buffer " + std::to_string(i) + " " + why);
    };
    if (life.bytes < 0) refuse("has a negative size");
    if (life.last < life.first) refuse("ends before it starts");
    if (life.bytes > std::numeric_limits<int64_t>::max() - alignment - sum)
      refuse("makes the sum of all overflow");
    life.bytes = rounded_up(life.bytes, alignment);
    sum += life.bytes;
  }
  return lives;
}

int64_t most_alive(const std::vector<BufferLife>& lives) {
  struct Change {
    size_t step;
    bool birth;
    int64_t bytes;
  };
  std::vector<Change> changes;
  changes.reserve(2 * lives.size());
  for (const auto& life : lives) {
    changes.push_back({life.first, true, life.bytes});
    changes.push_back({life.last, false, -life.bytes});
  }
  // In one step all births come before the deaths: a step may read one buffer to write another.
  std::ranges::sort(changes, [](const Change& a, const Change& b) {
    return std::tie(a.step, b.birth) < std::tie(b.step, a.birth);
  });
  int64_t alive = 0, most = 0;
  for (const auto& change : changes) most = std::max(most, alive += change.bytes);
  return most;
}

struct Range {
  int64_t begin, end;
};

/// The start of the smallest gap of `life.bytes` among the placed ones, which are sorted by their begin; of
/// equal gaps the lowest. The space above all of them is the last choice. `beside` is scratch as long as
/// `placed`: the loop over all is the whole cost of a plan, and has no branch.
int64_t best_fit(const std::vector<Placed>& placed, const BufferLife& life, std::vector<Range>& beside) {
  size_t count = 0;
  for (const auto& other : placed) {
    beside[count] = {other.begin, other.end};
    count += static_cast<size_t>(other.first <= life.last) & static_cast<size_t>(other.last >= life.first);
  }
  int64_t top = 0, best = -1, best_gap = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < count; ++i) {
    const int64_t gap = beside[i].begin - top;
    if (gap >= life.bytes && gap < best_gap) {
      best = top;
      best_gap = gap;
    }
    top = std::max(top, beside[i].end);
  }
  return best < 0 ? top : best;
}

MemoryPlan place(const std::vector<BufferLife>& lives, const std::vector<size_t>& order) {
  MemoryPlan plan{.offsets = std::vector<int64_t>(lives.size())};
  std::vector<Placed> placed;
  placed.reserve(order.size());
  std::vector<Range> beside(order.size());
  for (const size_t i : order) {
    const auto& life = lives[i];
    const int64_t begin = best_fit(placed, life, beside), end = begin + life.bytes;
    const auto where = std::ranges::upper_bound(placed, begin, {}, &Placed::begin);
    placed.insert(where, {begin, end, life.first, life.last});
    plan.offsets[i] = begin;
    plan.total = std::max(plan.total, end);
  }
  return plan;
}

using Before = bool (*)(const BufferLife&, const BufferLife&);

/// Bytes times steps: how much of the picture of space over time it covers. In floating point: no overflow.
double area(const BufferLife& life) {
  return static_cast<double>(life.bytes) * (1.0 + static_cast<double>(life.last - life.first));
}

}  // namespace

MemoryPlan plan_memory(std::span<const BufferLife> buffers, int64_t alignment) {
  const auto lives = checked(buffers, alignment);
  std::vector<size_t> all;
  for (size_t i = 0; i < lives.size(); ++i)
    if (lives[i].bytes > 0) all.push_back(i);

  constexpr std::array<Before, 2> kOrders{
      // The large ones first: the small ones fit into what is left.
      [](const BufferLife& a, const BufferLife& b) { return a.bytes > b.bytes; },
      // Also the long-lived ones: a small buffer that lives long splits the space of many others.
      [](const BufferLife& a, const BufferLife& b) { return area(a) > area(b); },
  };
  MemoryPlan best{.offsets = std::vector<int64_t>(lives.size())};
  if (all.empty()) return best;
  best.total = std::numeric_limits<int64_t>::max();
  const int64_t bound = most_alive(lives);
  for (const auto before : kOrders) {
    auto order = all;
    std::ranges::sort(order, [&](size_t a, size_t b) {
      if (before(lives[a], lives[b])) return true;
      return !before(lives[b], lives[a]) && a < b;
    });
    auto plan = place(lives, order);
    if (plan.total < best.total) best = std::move(plan);
    if (best.total - bound <= bound / 100) break;
  }
  best.at_least = bound;
  return best;
}

MemoryPlan plan_without_largest(std::span<const BufferLife> buffers, int64_t alignment) {
  auto plan = plan_memory(buffers, alignment);
  int64_t largest = 0;
  for (const auto& buffer : buffers) largest = std::max(largest, buffer.bytes);
  std::vector<BufferLife> others;
  for (const auto& buffer : buffers)
    if (buffer.bytes < largest) others.push_back(buffer);
  auto smaller = plan_memory(others, alignment);
  if (2 * smaller.total > plan.total) return plan;
  std::vector<int64_t> offsets;
  for (size_t i = 0, other = 0; i < buffers.size(); ++i)
    offsets.push_back(buffers[i].bytes < largest ? smaller.offsets[other++] : -1);
  smaller.offsets = std::move(offsets);
  return smaller;
}

}  // namespace graft::plan
