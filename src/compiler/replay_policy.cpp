#include "compiler/replay_policy.h"

#include <bit>

namespace graft {

bool ReplayPolicy::is_due(int64_t call, Replay option) const {
  if (option != Replay::automatic) return option == Replay::every;
  // What has changed may change again.
  if (changes_.load(std::memory_order_relaxed) || is_cheap_.load(std::memory_order_relaxed)) return true;
  // Host values mostly change early (a first call that sets something up) or at long intervals.
  return call == 3 || call == 6 || (call >= 4 && std::has_single_bit(static_cast<uint64_t>(call))) ||
         call % 1000 == 0;
}

void ReplayPolicy::note_times(double replay_seconds, double run_seconds) {
  constexpr double share = 0.01;
  is_cheap_.store(replay_seconds <= share * run_seconds, std::memory_order_relaxed);
}

bool ReplayPolicy::note_false_alarm() {
  constexpr int most = 3;
  return false_alarms_.fetch_add(1, std::memory_order_relaxed) < most;
}

}  // namespace graft
