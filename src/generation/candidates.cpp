#include "generation/candidates.h"

#include <algorithm>

namespace graft::generation {

Guesses PromptLookup::after(const std::vector<int64_t>& ids, int64_t most) {
  const auto length = static_cast<int64_t>(ids.size());
  for (int64_t size = std::min(ngram_, length - 1); size > 0; --size) {
    const auto last = ids.end() - size;
    // The run at the end finds itself, with nothing after it: the one before it is the last that counts.
    const auto found = std::search(ids.begin(), ids.end() - 1, last, ids.end());
    if (found == ids.end() - 1) continue;
    const auto first = found + size;
    return {.tokens = {first, first + std::min({most, tokens_, static_cast<int64_t>(ids.end() - first)})}};
  }
  return {};
}

}  // namespace graft::generation
