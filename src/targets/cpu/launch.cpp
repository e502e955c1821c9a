#include "targets/cpu/launch.h"

#include <algorithm>
#include <vector>

#include "targets/cpu/torch_threads.h"

namespace graft::cpu {
namespace {

// Below this many instruction-points waking another thread costs more than it saves.
constexpr int64_t work_per_thread = 60'000;

class CpuLauncher : public Launcher {
 public:
  explicit CpuLauncher(MachineKernel kernel) : kernel_(std::move(kernel)) {
    grain_ = std::max<int64_t>(1, work_per_thread / std::max<int64_t>(kernel_.plan.work, 1));
  }

  void launch(const Launch& launch) const override {
    int32_t error = 0;
    void* partials = nullptr;
    if (kernel_.plan.partial_words > 0) {
      // Grows to the largest that this thread has launched, and stays.
      thread_local std::vector<int64_t> memory;
      if (memory.size() < static_cast<size_t>(kernel_.plan.partial_words))
        memory.resize(static_cast<size_t>(kernel_.plan.partial_words));
      partials = memory.data();
    }
    for (int stage = 0; stage < kernel_.plan.stages; ++stage) run(launch.buffers, stage, partials, error);
    if (error) *launch.failed = launch.mark;
  }

 private:
  void run(void* const* buffers, int stage, void* partials, int32_t& error) const {
    const int64_t tasks = kernel_.plan.tasks_in(stage);
    if (tasks == 0) return;
    if (tasks <= grain_) {
      kernel_.function(buffers, 0, tasks, &error, partials, stage);
      return;
    }
    parallel_for(tasks, grain_, [&](int64_t begin, int64_t end) {
      int32_t mine = 0;
      kernel_.function(buffers, begin, end, &mine, partials, stage);
      if (mine) __atomic_store_n(&error, 1, __ATOMIC_RELAXED);
    });
  }

  MachineKernel kernel_;
  int64_t grain_;
};

}  // namespace

std::shared_ptr<const Launcher> make_launcher(MachineKernel kernel) {
  return std::make_shared<CpuLauncher>(std::move(kernel));
}

}  // namespace graft::cpu
