// Which of two ways to do the same is faster, found out while both do the work.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <vector>

namespace graft {

class SpeedTrial {
 public:
  enum class Way : size_t { compiled, eager };

  /// The way that the next call should go.
  Way next();
  /// What a call took that went this way.
  void note(Way way, std::chrono::steady_clock::duration time);

 private:
  std::mutex guard_;
  size_t calls_ = 0;
  std::array<std::vector<std::chrono::steady_clock::duration>, 2> times_;
  Way chosen_ = Way::compiled;
};

}  // namespace graft
