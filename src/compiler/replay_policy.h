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

 private:
  std::atomic<bool> is_cheap_{false}, changes_{false};
};

}  // namespace graft
