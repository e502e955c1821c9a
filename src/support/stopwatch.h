// Says how long a part of the work took, where times are logged.
#pragma once
#include <chrono>
#include <string>
#include <string_view>

#include "support/log.h"

namespace graft {

class Stopwatch {
 public:
  explicit Stopwatch(std::string_view what)
      : what_(what), on_(logs(LogTopic::times)), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    if (!on_) return;
    const auto took = std::chrono::steady_clock::now() - start_;
    log(LogTopic::times, std::string(what_) + ": " +
                             std::to_string(std::chrono::duration<double, std::milli>(took).count()) + " ms");
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::string_view what_;
  bool on_;  // asked here: a wrong GRAFT_LOGS is an error, and a destructor may not throw
  std::chrono::steady_clock::time_point start_;
};

}  // namespace graft
