// Functions that give tensor objects other memory, or reach memory that a tensor does not cover.
#include <torch/autograd.h>
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

TEST(WatchedMemory, FractionsFilledIntoFlagsAreTrue) {
  const std::vector<std::function<Tensor(const Tensor&, const Tensor&)>> all = {
      [](const Tensor& x, const Tensor& mask) { return x.masked_fill(mask, 0.5); },
      [](const Tensor& x, const Tensor& mask) { return at::full_like(x, 0.25) ^ mask; },
      [](const Tensor& x, const Tensor& mask) { return at::constant_pad_nd(x ^ mask, {1, 1}, 0.5); },
      [](const Tensor&, const Tensor& mask) { return at::scalar_tensor(0.5, at::kBool) ^ mask; }};
  for (const auto& f : all) {
    const auto fast = compile(f, {.fullgraph = true});
    for (int i = 0; i < 5; ++i) {
      const auto x = at::zeros({8}, at::kBool), mask = at::full({8}, i > 2, at::kBool);
      expect_same(fast(x, mask), f(x, mask));
    }
  }
}

/// The inner of the two loops over a row says nothing about the number.
TEST(WatchedMemory, SoftmaxOfRepeatedNumbers) {
  for (const int64_t columns : {1, 2, 4, 7, 17})
    for (const int64_t times : {2, 3, 16})
      for (const int64_t dim : {0, 1}) {
        const auto x = at::randn({3, columns}).requires_grad_(), y = x.detach().clone().requires_grad_();
        const auto f = [&](const Tensor& t) { return t.repeat_interleave(times, dim).softmax(dim); };
        const auto fast = compile(f, {.fullgraph = true});
        for (int i = 0; i < 3; ++i) {
          const auto got = fast(x), want = f(y);
          expect_same(got, want);
          const auto tangent = at::randn_like(want);
          expect_same(torch::autograd::grad({got}, {x}, {tangent})[0],
                      torch::autograd::grad({want}, {y}, {tangent})[0]);
        }
      }
}

}  // namespace
}  // namespace graft
