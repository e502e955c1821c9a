// Functions that give tensor objects other memory, or reach memory that a tensor does not cover.
#include <torch/nn/module.h>

#include "watched_state.h"

namespace graft {
namespace {

using namespace watched_state;

TEST(WatchedMemory, AnArgumentIsGivenOtherMemory) {
  const auto f = [](const Tensor& x, const Tensor& y) {
    x.set_data(y * 2);
    return x.sum();
  };
  const auto fast = compile(f);
  for (int i = 0; i < 5; ++i) {
    const auto got = at::ones({6}), want = at::ones({6});
    expect_same(fast(got, numbers(i)), f(want, numbers(i)));
    expect_same(got, want);
  }
}

struct Holder : torch::nn::Module {
  Tensor kept = register_buffer("kept", at::ones({6}));
  Tensor average = register_parameter("average", at::ones({6}), /*requires_grad=*/false);
  Tensor forward(const Tensor& x) {
    kept.set_data(x * 2);
    average.set_data(average * 0.9 + x * 0.1);
    return (average * x).sum();
  }
};

TEST(WatchedMemory, ABufferAndAParameterAreGivenOtherMemory) {
  const auto mine = std::make_shared<Holder>(), theirs = std::make_shared<Holder>();
  const auto fast = compile(mine);
  for (int i = 0; i < 5; ++i) {
    expect_same(fast(numbers(i)), theirs->forward(numbers(i)));
    expect_same(mine->kept, theirs->kept);
    expect_same(mine->average, theirs->average);
  }
}

TEST(WatchedMemory, ARefusedFunctionHasChangedNoMemory) {
  const auto module = std::make_shared<Holder>();
  const auto fast = compile(module, {.fullgraph = true});
  const auto before = module->average;
  const auto* storage = before.storage().unsafeGetStorageImpl();
  EXPECT_THROW(fast(numbers(1)), GraphBreak);
  EXPECT_EQ(module->average.storage().unsafeGetStorageImpl(), storage);
  expect_same(module->average, at::ones({6}));
  expect_same(module->kept, at::ones({6}));
}

/// The tensor that has the memory afterwards is none that the function computes with.
TEST(WatchedMemory, ACapturedTensorIsGivenOtherMemory) {
  for (const bool reads_before : {false, true})
    for (const bool reads_after : {false, true}) {
      SCOPED_TRACE(testing::Message() << "before " << reads_before << ", after " << reads_after);
      auto held = at::ones({6});
      const auto f = [&](const Tensor& x) {
        auto sum = x.sum();
        if (reads_before) sum = sum + held.sum();
        held.set_data(x * 2);
        if (reads_after) sum = sum + held.sum();
        return sum;
      };
      const auto fast = compile(f);
      for (int i = 0; i < 5; ++i) {
        held = at::ones({6});
        const auto want = f(numbers(i)), kept = held;
        held = at::ones({6});
        expect_same(fast(numbers(i)), want);
        expect_same(held, kept);
      }
    }
}

TEST(WatchedMemory, ViewsThatReachBeyondATensor) {
  const auto written = [](const Tensor& x) {
    x.as_strided({3, 2}, {2, 1}, 1).mul_(3);
    return x * 1;
  };
  const auto in_the_gaps = [](const Tensor& x) {
    x.as_strided({4}, {1}, x.storage_offset()).mul_(3);
    return x * 1;
  };
  const auto read = [](const Tensor& x) { return x.as_strided({3, 2}, {2, 1}, 1) * 2; };
  for (const auto& f :
       {std::function<Tensor(const Tensor&)>(written), std::function<Tensor(const Tensor&)>(in_the_gaps),
        std::function<Tensor(const Tensor&)>(read)})
    for (const int64_t step : {1, 2}) {
      const auto fast = compile(f);
      for (int i = 0; i < 5; ++i) {
        const auto got = at::arange(20, at::kFloat) + i, want = got.clone();
        expect_same(fast(got.slice(0, 3, 13, step)), f(want.slice(0, 3, 13, step)));
        expect_same(got, want);
      }
    }
}

/// The offset that is guarded is the tensor's, not that of the copy which was made of it.
TEST(WatchedMemory, PlacesInAStorageBesideATensorThatIsChanged) {
  const auto memory = at::zeros({12});
  const auto held = memory.slice(0, 4, 12, 2);
  const auto f = [&](const Tensor& x) {
    held.add_(x);
    return x.as_strided({2}, {1}, 0) * 2;
  };
  const auto fast = compile(f, {.fullgraph = true});
  const auto x = at::ones({4});
  for (int i = 0; i < 5; ++i) {
    expect_same(fast(x), at::full({2}, 2.0f));
    expect_same(held, at::full({4}, i + 1.0f));
  }
}

}  // namespace
}  // namespace graft
