#include "support/in_parallel.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "support/env.h"

namespace graft {

void in_parallel(size_t count, const std::function<void(size_t)>& body) {
  const auto most = env_number("GRAFT_COMPILE_THREADS").value_or(std::thread::hardware_concurrency());
  const size_t threads = std::min<size_t>(count, static_cast<size_t>(std::max<int64_t>(most, 1)));
  std::atomic<size_t> next{0};
  std::mutex guard;
  std::exception_ptr failed;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) try {
        body(i);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(guard);
        if (!failed) failed = std::current_exception();
      }
  };
  std::vector<std::thread> workers;
  for (size_t i = 1; i < threads; ++i) workers.emplace_back(work);
  work();
  for (auto& worker : workers) worker.join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace graft
