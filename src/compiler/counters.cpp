#include "compiler/counters.h"

#include <atomic>
#include <mutex>

namespace graft {
namespace {

std::mutex guard;
Counters all;
std::atomic<uint64_t> generation{0};

}  // namespace

void count(const std::function<void(Counters&)>& change) {
  const std::lock_guard<std::mutex> lock(guard);
  change(all);
}

uint64_t reset_generation() { return generation.load(std::memory_order_acquire); }

Counters counters() {
  const std::lock_guard<std::mutex> lock(guard);
  return all;
}

void reset() {
  const std::lock_guard<std::mutex> lock(guard);
  all = {};
  generation.fetch_add(1, std::memory_order_release);
}

}  // namespace graft
