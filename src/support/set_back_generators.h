// Random generators that are set back, so that the same numbers are drawn again.
#pragma once
#include <cstdint>

namespace graft {

/// Whoever sets one back to where it was in this call says so, as a block that is computed again does: else
/// it looks like a seed, after which every call draws the same.
void will_set_generator_back();

/// How often this thread has.
uint64_t generators_set_back();

}  // namespace graft
