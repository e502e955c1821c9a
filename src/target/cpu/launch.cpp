#include "target/cpu/launch.h"

#include <algorithm>
#include <vector>

#include "target/cpu/torch_threads.h"
#include "target/cpu/tuning.h"
#include "target/cpu_target.h"

namespace graft::cpu {
namespace {

// Below this many instruction-points waking another thread costs more than it saves.
constexpr int64_t work_per_thread = 60'000;

class CpuLauncher : public Launcher {
 public:
  explicit CpuLauncher(MachineKernel kernel) : kernel_(std::move(kernel)) {
    grain_ = std::max<int64_t>(1, work_per_thread / std::max<int64_t>(kernel_.plan.work, 1));
  }

  bool launch(void* const* buffers) const override {
    int32_t error = 0;
    void* partials = nullptr;
    if (kernel_.plan.partial_words > 0) {
      // Grows to the largest that this thread has launched, and stays.
      thread_local std::vector<int64_t> memory;
      if (memory.size() < static_cast<size_t>(kernel_.plan.partial_words))
        memory.resize(static_cast<size_t>(kernel_.plan.partial_words));
      partials = memory.data();
    }
    for (int stage = 0; stage < kernel_.plan.stages; ++stage) run(buffers, stage, partials, error);
    return error == 0;
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

std::vector<const codegen::Kernel*> kernels_of(const codegen::Schedule& schedule) {
  std::vector<const codegen::Kernel*> kernels;
  for (const auto& step : schedule.steps)
    if (!step.external) kernels.push_back(&step.kernel);
  return kernels;
}

}  // namespace

std::shared_ptr<const Launcher> make_launcher(MachineKernel kernel) {
  return std::make_shared<CpuLauncher>(std::move(kernel));
}

bool available() { return true; }

CompiledKernels compile(const codegen::Schedule& schedule, const runtime::Measuring& how) {
  std::vector<TunedKernel> kernels;
  for (const auto* kernel : kernels_of(schedule)) kernels.push_back({kernel});
  if (how.thorough) tune(schedule, kernels, how.use_cache);
  auto made = compile_kernels(kernels, how.use_cache);
  CompiledKernels compiled;
  compiled.unique = made.unique;
  compiled.cache_hits = made.cache_hits;
  for (auto& kernel : made.kernels) compiled.launchers.push_back(make_launcher(std::move(kernel)));
  return compiled;
}

std::string llvm_of(const codegen::Schedule& schedule) {
  std::string text;
  for (const auto* kernel : kernels_of(schedule)) text += to_string(*kernel) + cpu::llvm_of(*kernel) + "\n";
  return text;
}

}  // namespace graft::cpu
