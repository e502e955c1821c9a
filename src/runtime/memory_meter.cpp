#include "runtime/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <mutex>
#include <optional>

namespace graft {
namespace {

// torch's allocators, of all devices, report to whoever holds this slot of the thread's debug info.
class Listener : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    const std::lock_guard<std::mutex> lock(guard_);
    held_ += size;
    peak_ = std::max(peak_, held_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const {
    const std::lock_guard<std::mutex> lock(guard_);
    return peak_;
  }
  void start_again() {
    const std::lock_guard<std::mutex> lock(guard_);
    peak_ = held_;
  }

 private:
  mutable std::mutex guard_;
  int64_t held_ = 0, peak_ = 0;
};

}  // namespace

struct MemoryMeter::State {
  std::shared_ptr<Listener> listener = std::make_shared<Listener>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, listener};
};

MemoryMeter::MemoryMeter() : state_(std::make_shared<State>()) {}
MemoryMeter::~MemoryMeter() = default;
void MemoryMeter::start_again() { state_->listener->start_again(); }
int64_t MemoryMeter::peak() const { return state_->listener->peak(); }

}  // namespace graft
