#include "runtime/arena_pool.h"

#include <algorithm>
#include <map>

namespace graft::runtime {

std::shared_ptr<ArenaPool> ArenaPool::shared(const Device& device) {
  static std::mutex guard;
  static std::map<const Device*, std::weak_ptr<ArenaPool>> pools;
  const std::lock_guard<std::mutex> lock(guard);
  auto& current = pools[&device];
  auto pool = current.lock();
  if (!pool) current = pool = std::make_shared<ArenaPool>(device);
  return pool;
}

ArenaPool::Loan::Loan(ArenaPool& pool, int64_t bytes) : pool_(pool) {
  if (bytes == 0) return;
  const int64_t needed = bytes + pool.device_.alignment();
  if (!pool.device_.has_pool()) {
    const std::lock_guard<std::mutex> lock(pool.guard_);
    auto& free = pool.free_;
    // The last that came back: it is near the core.
    auto found = std::find_if(free.rbegin(), free.rend(),
                              [&](const at::Tensor& memory) { return memory.numel() >= needed; });
    const bool fits = found != free.rend();
    if (!fits) found = free.rbegin();
    if (found != free.rend()) {
      memory_ = std::move(*found);
      free.erase(std::next(found).base());
    }
    if (fits) return;
  }
  memory_.reset();  // it was too small: one that fits takes its place
  memory_ = pool.device_.allocate(needed);
}

ArenaPool::Loan::~Loan() {
  if (!memory_.defined() || pool_.device_.has_pool()) return;
  const std::lock_guard<std::mutex> lock(pool_.guard_);
  pool_.free_.push_back(std::move(memory_));
}

void* ArenaPool::Loan::start() const {
  if (!memory_.defined()) return nullptr;
  const auto first = reinterpret_cast<uintptr_t>(memory_.data_ptr());
  const auto alignment = static_cast<uintptr_t>(pool_.device_.alignment());
  return reinterpret_cast<void*>((first + alignment - 1) / alignment * alignment);
}

}  // namespace graft::runtime
