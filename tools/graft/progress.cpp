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

}  // namespace graft::cli
