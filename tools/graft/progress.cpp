#include "progress.h"

#include <unistd.h>

#include <cstdio>

namespace graft::cli {

std::function<void(int64_t, int64_t)> progress_bar(const std::string& label) {
  if (!isatty(STDERR_FILENO)) return {};
  return [label, shown = -1](int64_t done, int64_t total) mutable {
    constexpr int kWidth = 32;
    const int percent = total > 0 ? static_cast<int>(done * 100 / total) : 100;
    if (percent == shown) return;
    shown = percent;
    const int filled = percent * kWidth / 100;
    std::fprintf(stderr, "\r%s [%s%s] %3d %%", label.c_str(), std::string(filled, '#').c_str(),
                 std::string(kWidth - filled, ' ').c_str(), percent);
    if (done >= total) std::fprintf(stderr, "\n");
  };
}

std::function<void(const TrainingStep&)> training_progress() {
  if (!isatty(STDERR_FILENO)) return [](const TrainingStep&) {};
  // Averages that follow a change of speed, and do not start with the compilation.
  return [seconds = 0.0, tokens = 0.0, count = 0](const TrainingStep& step) mutable {
    constexpr double kKeep = 0.9;
    const bool settled = count++ > 2;
    seconds = settled ? kKeep * seconds + (1 - kKeep) * step.seconds : step.seconds;
    tokens = settled ? kKeep * tokens + (1 - kKeep) * static_cast<double>(step.tokens)
                     : static_cast<double>(step.tokens);
    const auto left = static_cast<int64_t>(seconds * static_cast<double>(step.max_steps - step.step));
    std::fprintf(stderr, "\rstep %lld/%lld  loss %.4f  %.0f tokens/s  %lld:%02lld:%02lld left \033[K",
                 static_cast<long long>(step.step), static_cast<long long>(step.max_steps), step.loss,
                 tokens / seconds, static_cast<long long>(left / 3600),
                 static_cast<long long>(left / 60 % 60), static_cast<long long>(left % 60));
    if (step.step == step.max_steps) std::fprintf(stderr, "\n");
  };
}

}  // namespace graft::cli
