// Where each temporary buffer of an executable lies in its one arena. Which buffer lives when is known before
// the first run, so the places are chosen once and a run allocates nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace graft::plan {

struct BufferLife {
  int64_t bytes = 0;  // 0 is a tensor with no elements
  size_t first = 0;   // the step that writes it
  size_t last = 0;    // the last step that reads it, inclusive, at least `first`
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // one for each buffer, in the order given; 0 for those of no bytes
  int64_t total = 0;             // bytes of the arena
  int64_t at_least = 0;          // the most bytes alive in one step: no plan needs less
};

/// Offsets and sizes are multiples of the alignment: two buffers that are alive in one step share no byte,
/// and no unit of that size either. The same lives give the same plan. std::invalid_argument for a buffer of
/// negative size, one that ends before it starts, or a sum that no arena can have.
MemoryPlan plan_memory(std::span<const BufferLife> buffers, int64_t alignment);

/// Like plan_memory(), but for buffers that had better come and go: their offset is -1. An arena is held
/// through the whole run; where a few buffers (of a vocabulary's size, say) are most of it, they are these.
MemoryPlan plan_without_largest(std::span<const BufferLife> buffers, int64_t alignment);

}  // namespace graft::plan
