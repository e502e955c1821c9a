// Says how long a part of the work took, where times are logged.
#pragma once
#include <chrono>
#include <string>
#include <string_view>

#include "support/log.h"

namespace graft {

class Stopwatch {
 public:
  explicit Stopwatch(std::string_view what) : what_(what), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    if (!logs(LogTopic::times)) return;
    const auto took = std::chrono::steady_clock::now() - start_;
    log(LogTopic::times, std::string(what_) + ": " +
                             std::to_string(std::chrono::duration<double, std::milli>(took).count()) + " ms");
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::string_view what_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace graft
