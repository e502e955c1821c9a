#include "stop_signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <string_view>

namespace graft::cli {
namespace {

constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};
constexpr int64_t kSameSignalMs = 200;

std::atomic<int> first = 0;
std::atomic<int64_t> came_at = 0;
std::atomic<bool> aloud = false, over_a_line = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free,
              "a signal handler may not wait");

int64_t now_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
}

void hear(int signal) {
  int none = 0;
  if (first.compare_exchange_strong(none, signal)) {
    came_at = now_ms();
    std::string_view said = "\ngraft: stopping after this step, with a checkpoint; once more ends at once\n";
    if (!over_a_line) said.remove_prefix(1);
    if (aloud && ::write(STDERR_FILENO, said.data(), said.size()) < 0) return;  // nobody listens
  } else if (now_ms() - came_at > kSameSignalMs) {
    std::signal(signal, SIG_DFL);
    ::raise(signal);  // comes when this function returns
  }
}

}  // namespace

StopSignals::StopSignals(bool speaks) {
  first = 0;
  aloud = speaks;
  over_a_line = isatty(STDERR_FILENO) != 0;  // the line that is drawn again has no end
  struct sigaction action = {};
  action.sa_handler = hear;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

int StopSignals::seen() { return first; }

const char* signal_name(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

}  // namespace graft::cli
