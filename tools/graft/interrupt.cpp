#include "interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

#include "graft/error.h"

namespace graft::cli {
namespace {

std::atomic<bool> seen = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait");

/// A byte for each Ctrl-C, so that who waits for the standard input wakes up, whichever thread the signal
/// came to and however shortly before.
std::array<int, 2> bell = {-1, -1};

void remember(int) {
  seen = true;
  const char byte = 0;
  if (write(bell[1], &byte, 1) < 0) return;  // it is full: that wakes as well
}

}  // namespace

void catch_interrupts() {
  if (pipe2(bell.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw Error("[chat] the system gives no pipe");
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return seen.exchange(false); }

bool wait_for_input() {
  std::array<pollfd, 2> watched = {pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{bell[0], POLLIN, 0}};
  for (;;) {
    if (poll(watched.data(), watched.size(), -1) < 0) continue;  // a signal
    std::array<char, 64> bytes{};
    while (read(bell[0], bytes.data(), bytes.size()) > 0) {
    }
    if (interrupted()) return false;
    if (watched[0].revents != 0) return true;
  }
}

}  // namespace graft::cli
