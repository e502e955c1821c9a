// What a trusted program costs beside its arithmetic: no memory, little time.
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <chrono>
#include <filesystem>

#include "graft/compile.h"
#include "graft/compile_step.h"

namespace graft {
namespace {

using at::Tensor;

int64_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// at::parallel_for is a plain loop in a file that is compiled without OpenMP, and for a while all kernels ran
// on one thread. Torch's threads are made when first needed: here by a kernel, in a process of its own.
TEST(SteadyState, KernelsRunOnTorchsThreads) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    at::set_num_threads(1);
    const auto x = at::randn({1 << 20});
    const auto fast = compile([](Tensor t) { return t.exp() + 1; }, {.cache = false});
    for (int call = 0; call < 3; ++call) fast(x);
    const auto before = threads_of_this_process();
    at::set_num_threads(3);
    fast(x);
    std::_Exit(static_cast<int>(threads_of_this_process() - before));
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(2), "");
}

/// Counts what tensors ask for, and passes it on.
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* real) : real_(real) {}
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes > 0) ++count;
    return real_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return real_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    real_->copy_data(to, from, bytes);
  }

  std::atomic<int64_t> count{0};

 private:
  c10::Allocator* real_;
};

class Counting {
 public:
  Counting() : before_(c10::GetCPUAllocator()), allocator_(before_) { c10::SetCPUAllocator(&allocator_, 1); }
  ~Counting() { c10::SetCPUAllocator(before_, 1); }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;
  int64_t count() const { return allocator_.count; }

 private:
  c10::Allocator* before_;
  CountingAllocator allocator_;
};

TEST(SteadyState, InferenceAllocatesNothing) {
  const auto w = at::randn({32, 64}), v = at::randn({64, 8});
  const auto fast = compile([w, v](Tensor x) { return at::gelu(x.mm(w)).mm(v).softmax(-1) + 1; },
                            {.fullgraph = true, .replay = Replay::off, .cache = false});
  const at::NoGradGuard no_grad;
  const auto x = at::randn({16, 32});
  for (int i = 0; i < 4; ++i) fast(x);
  const Counting counting;
  for (int i = 0; i < 5; ++i) fast(x);
  EXPECT_EQ(counting.count(), 0);
}

TEST(SteadyState, TrainingStepAllocatesNothing) {
  struct Net : torch::nn::Module {
    torch::nn::Linear a{register_module("a", torch::nn::Linear(12, 20))},
        b{register_module("b", torch::nn::Linear(20, 4))};
  };
  const auto net = std::make_shared<Net>();
  auto step =
      compile_step(net, [net](const Tensor& x) { return net->b(at::silu(net->a(x))).square().mean(); },
                   AdamW{.lr = 1e-3}, {.max_grad_norm = 1.0, .compile = {.fullgraph = true, .cache = false}});
  const auto x = at::randn({8, 12});
  for (int i = 0; i < 4; ++i) step(x);
  const Counting counting;
  for (int i = 0; i < 5; ++i) step(x);
  EXPECT_EQ(counting.count(), 0);
}

TEST(SteadyState, OverheadOfACall) {
  // Ten small inputs, one kernel: nearly all of the time is finding and starting the program. No limit here,
  // the machine may be busy; the figure goes into the log.
  const auto fast = compile(
      [](std::vector<Tensor> x) {
        auto sum = x[0];
        for (size_t i = 1; i < x.size(); ++i) sum = sum + x[i];
        return sum;
      },
      {.fullgraph = true, .cache = false});
  const auto mismatches = counters().mismatches;  // other tests' too
  const at::NoGradGuard no_grad;
  std::vector<Tensor> inputs;
  for (int i = 0; i < 10; ++i) inputs.push_back(at::randn({8}));
  for (int i = 0; i < 100; ++i) fast(inputs);
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 500; ++i) fast(inputs);
    best = std::min(
        best,
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 500);
  }
  RecordProperty("microseconds", std::to_string(best));
  std::printf("  a call with ten inputs: %.2f us\n", best);
  EXPECT_EQ(counters().mismatches, mismatches);
}

}  // namespace
}  // namespace graft
