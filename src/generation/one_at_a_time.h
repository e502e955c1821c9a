// Calls of what keeps a state of its own do not go on at the same time.
#pragma once
#include <atomic>
#include <string>

#include "graft/error.h"

namespace graft::generation {

/// While one lives no other may: a call inside of another (by a callback), or beside it in another thread,
/// would write over what that one keeps.
class OneAtATime {
 public:
  OneAtATime(std::atomic<bool>& busy, const std::string& refusal) : busy_(busy) {
    if (busy.exchange(true)) throw UsageError(refusal);
  }
  ~OneAtATime() { busy_ = false; }
  OneAtATime(const OneAtATime&) = delete;
  OneAtATime& operator=(const OneAtATime&) = delete;

 private:
  std::atomic<bool>& busy_;
};

}  // namespace graft::generation
