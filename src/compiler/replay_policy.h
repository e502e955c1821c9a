// In which calls of a program the function's C++ code is replayed (capture/replay.h), to see that it still
// does what the program was made from.
#pragma once
#include <atomic>
#include <cstdint>

#include "graft/compile.h"

namespace graft {

class ReplayPolicy {
 public:
  /// `call`: of the program, counted from 1. The first two are compared with the function itself.
  bool is_due(int64_t call, Replay option) const;
  /// What a replay took, and the run of the program in the same call.
  void note_times(double replay_seconds, double run_seconds);
  /// The function has done something else than the program, or gave other host values.
  void note_change() { changes_.store(true, std::memory_order_relaxed); }
  bool has_changed() const { return changes_.load(std::memory_order_relaxed); }
  /// A replay saw a change: so many of the next calls are watched, to see it again. More each time that none
  /// did.
  int watches_for_change() const { return 4 << false_alarms_.load(std::memory_order_relaxed); }
  /// None of them saw it. False when that came too often.
  bool note_false_alarm();

 private:
  std::atomic<int> false_alarms_{0};
  std::atomic<bool> is_cheap_{false}, changes_{false};
};

}  // namespace graft
