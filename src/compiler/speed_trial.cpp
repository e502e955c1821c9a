#include "compiler/speed_trial.h"

#include <algorithm>

namespace graft {
namespace {

/// Code is compiled in the first, and compared with eager code.
constexpr size_t calls_before = 16;
constexpr size_t calls_of_each = 9;

}  // namespace

SpeedTrial::Way SpeedTrial::next() {
  const std::lock_guard<std::mutex> lock(guard_);
  const size_t call = calls_++;
  if (call < calls_before || call >= calls_before + 2 * calls_of_each) return chosen_;
  return (call - calls_before) % 2 == 0 ? Way::compiled : Way::eager;
}

void SpeedTrial::note(Way way, std::chrono::steady_clock::duration time) {
  const std::lock_guard<std::mutex> lock(guard_);
  if (calls_ <= calls_before || times_[0].size() + times_[1].size() == 2 * calls_of_each) return;
  times_[static_cast<size_t>(way)].push_back(time);
  if (times_[0].size() + times_[1].size() < 2 * calls_of_each) return;
  for (auto& times : times_) std::ranges::sort(times);
  const auto median = [&](Way of) {
    const auto& times = times_[static_cast<size_t>(of)];
    return times.empty() ? std::chrono::steady_clock::duration::max() : times[times.size() / 2];
  };
  if (median(Way::eager) < median(Way::compiled)) chosen_ = Way::eager;
}

}  // namespace graft
