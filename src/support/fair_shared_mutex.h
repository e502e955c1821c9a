// A shared mutex whose writers get their turn. glibc's lets readers in as long as there are any, so that
// threads which call a model all the time would keep it from ever being changed.
#pragma once
#include <mutex>
#include <shared_mutex>

namespace graft {

/// As std::shared_mutex: a reader that is one already must not ask again.
class FairSharedMutex {
 public:
  void lock() {
    const std::lock_guard<std::mutex> turn(turn_);
    readers_.lock();
  }
  void unlock() { readers_.unlock(); }
  void lock_shared() {
    const std::lock_guard<std::mutex> turn(turn_);  // which a writer keeps while it waits
    readers_.lock_shared();
  }
  void unlock_shared() { readers_.unlock_shared(); }

 private:
  std::mutex turn_;
  std::shared_mutex readers_;
};

}  // namespace graft
