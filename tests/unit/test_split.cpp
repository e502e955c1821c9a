// Functions that read values on the host are compiled in parts. The promise: whatever C++ decides by values,
// a call gives what the function gives, and its code runs once.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>
#include <thread>

#include "graft/compile.h"

namespace graft {
namespace {

using at::Tensor;

const CompileOptions in_parts = {.replay = Replay::automatic, .split = true};

void expect_near(const Tensor& got, const Tensor& want, int call) {
  ASSERT_EQ(got.sizes(), want.sizes()) << "call " << call;
  EXPECT_EQ(got.requires_grad(), want.requires_grad()) << "call " << call;
  EXPECT_TRUE(at::allclose(got, want, 1e-4, 1e-5, /*equal_nan=*/true)) << "call " << call;
}

/// Compares a function with its compiled form on random inputs, with gradients.
template <class F>
void expect_as_eager(F function, bool gradients, int calls = 60) {
  const at::AutoGradMode mode(gradients);
  int runs = 0;
  const auto fast = compile(
      [&](Tensor x) {
        ++runs;
        return function(x);
      },
      in_parts);
  at::manual_seed(3);
  for (int call = 0; call < calls && !testing::Test::HasFailure(); ++call) {
    const auto x = at::randn({4, 5});
    const auto a = x.clone().set_requires_grad(gradients), b = x.clone().set_requires_grad(gradients);
    const auto want = function(a);
    runs = 0;
    const auto got = fast(b);
    EXPECT_EQ(runs, 1) << call;
    expect_near(got, want, call);
    if (!gradients) continue;
    const auto tangent = at::randn(want.sizes());
    want.backward(tangent);
    got.backward(tangent);
    expect_near(b.grad(), a.grad(), call);
  }
}

class Split : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(WithAndWithoutGradients, Split, testing::Bool());

TEST_P(Split, ABranch) {
  expect_as_eager(
      [](const Tensor& x) {
        const auto y = x.sin() * 2;
        if (y.sum().item<double>() > 0) return y.relu().exp();
        return y.softmax(-1) + x;
      },
      GetParam());
}

TEST_P(Split, ALoop) {
  expect_as_eager(
      [](const Tensor& x) {
        auto y = x.tanh();
        for (int i = 0; i < 10 && y.abs().max().item<float>() > 0.2; ++i) y = y * 0.6 + x * 0.01;
        return y;
      },
      GetParam());
}

TEST_P(Split, AnEarlyReturn) {
  expect_as_eager(
      [](const Tensor& x) {
        const auto norm = x.square().sum();
        if (norm.item<float>() > 20) return x / norm.sqrt();
        const auto y = x.exp();
        if (y.max().item<float>() > 5) return y.clamp(0, 5) * x;
        return y.log1p() * 2;
      },
      GetParam());
}

TEST_P(Split, ShapesThatDependOnValues) {
  expect_as_eager(
      [](const Tensor& x) {
        const auto mask = x.detach() > 0.5;
        const auto chosen = (x * 2).masked_select(mask);
        const auto places = mask.nonzero();
        return chosen.exp().sum() + places.to(at::kFloat).sum() * x.mean();
      },
      GetParam());
}

/// ATen's own function calls operators, reads, and calls more of them.
TEST_P(Split, AnOperatorThatReadsOnItsWay) {
  expect_as_eager([](const Tensor& x) { return at::combinations(x.sin().slice(1, 0, 1).flatten(), 2) * 2; },
                  GetParam());
  expect_as_eager(
      [](const Tensor& x) {
        const auto row = x.exp().flatten();
        return at::combinations(row, 2, /*with_replacement=*/true).sum(1) + row.sum();
      },
      GetParam());
}

TEST_P(Split, Printing) {
  std::ostringstream out;
  expect_as_eager(
      [&](const Tensor& x) {
        const auto y = x.cos() * 3;
        out.str("");
        out << y.detach().select(0, 0);
        return y.exp();
      },
      GetParam());
  EXPECT_NE(out.str().find("CPUFloatType"), std::string::npos);
}

TEST_P(Split, PointersToElements) {
  expect_as_eager(
      [](const Tensor& x) {
        auto y = x.detach().cos().contiguous();
        auto* p = y.data_ptr<float>();
        for (int64_t i = 0; i < y.numel(); ++i)
          if (p[i] < 0) p[i] = 0;
        const auto numbers = torch::tensor({p[0], 2.0F, 3.0F, 4.0F, 5.0F});
        return x * y + numbers;
      },
      GetParam());
}

TEST_P(Split, WritesAndViews) {
  expect_as_eager(
      [](const Tensor& x) {
        auto y = x * 2;
        auto row = y.select(0, 1);
        row.mul_(3);
        if (row.sum().item<float>() > 0) row.add_(1);
        auto other = y.t();
        other.mul_(x.t().sigmoid());
        if (y.max().item<float>() > 2) y.select(1, 0).zero_();
        return y + row;
      },
      GetParam());
}

TEST_P(Split, ResultsThatAreKept) {
  const at::AutoGradMode mode(GetParam());
  Tensor mine, theirs;
  const auto step = [](const Tensor& x, Tensor& state) {
    if (!state.defined()) state = at::zeros_like(x);
    state = (state * 0.9 + x.detach()).tanh();
    return x * state;
  };
  const auto fast = compile([&](Tensor x) { return step(x, theirs); }, in_parts);
  for (int call = 0; call < 50; ++call) {
    const auto x = at::randn({3}).set_requires_grad(GetParam());
    expect_near(fast(x), step(x, mine), call);
    expect_near(theirs, mine, call);
  }
}

/// A state that each call replaces is an input of the parts: they are compiled once.
TEST_P(Split, AStateThatEachCallReplaces) {
  const at::AutoGradMode mode(GetParam());
  const auto step = [](const Tensor& x, Tensor& state) {
    const auto y = x * state + x.mean().item<double>();
    state = (state * 0.9 + y.detach()).tanh();
    return y.sum().item<double>() > 0 ? y.exp() : y * state;
  };
  Tensor mine = at::ones({3}), theirs = at::ones({3});
  const auto fast = compile([&](Tensor x) { return step(x, theirs); }, in_parts);
  reset();
  int64_t graphs = 0;
  for (int call = 0; call < 40; ++call) {
    const auto x = at::randn({3}).set_requires_grad(GetParam());
    expect_near(fast(x), step(x, mine), call);
    expect_near(theirs, mine, call);
    if (call == 20) graphs = counters().graphs;
  }
  EXPECT_EQ(counters().graphs, graphs);
}

TEST_P(Split, ThreeBreaksOnManyInputs) {
  expect_as_eager(
      [](const Tensor& x) {
        auto y = x.sin();
        for (int i = 0; i < 3; ++i) {
          if (y.sum().item<float>() > i)
            y = (y * 1.5).tanh();
          else
            y = y.exp() - x;
        }
        return y;
      },
      GetParam(), GetParam() ? 300 : 2000);
}

TEST(SplitFunctions, NumbersThatWereRead) {
  const at::NoGradGuard no_grad;
  const auto function = [](const Tensor& x) { return x / x.abs().max().item<double>(); };
  const auto fast = compile(function, in_parts);
  for (int call = 0; call < 50; ++call) {
    const auto x = at::randn({6});
    expect_near(fast(x), function(x), call);
  }
}

/// A number that was read is another one in each call: an input of the part after it, not another way.
TEST_P(Split, NumbersThatWereReadAreInputsOfParts) {
  const auto function = [](const Tensor& x) {
    const auto scale = x.abs().max().item<double>();
    const auto y = (x / scale).exp() * 2;
    const auto many = (y > 2).sum().item<int64_t>();
    return y * many + x.sum() * scale - y.mean() / (1 + many);
  };
  expect_as_eager(function, GetParam());
  const at::AutoGradMode mode(GetParam());
  const auto fast = compile(function, in_parts);
  const auto call = [&] { return fast(at::randn({4, 5}).set_requires_grad(GetParam())); };
  reset();
  for (int i = 0; i < 8; ++i) call();
  const auto graphs = counters().graphs;
  EXPECT_EQ(graphs, 3);
  for (int i = 0; i < 8; ++i) call();
  EXPECT_EQ(counters().graphs, graphs);
}

TEST_P(Split, NumbersThatWereReadAndBranches) {
  expect_as_eager(
      [](const Tensor& x) {
        const auto mean = x.mean().item<double>();
        auto y = x - mean;
        if (y.select(0, 0).sum().item<double>() > 0) {
          y = y * y.std().item<double>();
          return mean > 0 ? y.exp() : y.pow(1 + std::abs(mean));
        }
        return y.masked_fill(y < 0, mean) + at::scalar_tensor(mean, x.options().requires_grad(false));
      },
      GetParam(), 200);
}

TEST(SplitFunctions, WhatIsThrownComesAfterWhatWasDone) {
  const at::NoGradGuard no_grad;
  const auto function = [](const Tensor& x) {
    x.add_(1);
    if (x.sum().item<float>() > 3) {
      x.mul_(2);
      throw std::runtime_error("too much");
    }
    return x.exp();
  };
  const auto fast = compile(function, in_parts);
  int thrown = 0;
  for (int call = 0; call < 60; ++call) {
    const auto x = at::randn({4}), a = x.clone(), b = x.clone();
    std::string one, two;
    try {
      function(a);
    } catch (const std::runtime_error& error) {
      one = error.what();
    }
    try {
      fast(b);
    } catch (const std::runtime_error& error) {
      two = error.what();
    }
    EXPECT_EQ(one, two) << call;
    thrown += !one.empty();
    expect_near(b, a, call);
  }
  EXPECT_GT(thrown, 5);
}

TEST(SplitFunctions, RandomNumbersComeInTheirOrder) {
  const at::NoGradGuard no_grad;
  const auto function = [](const Tensor& x) {
    const auto y = at::dropout(x, 0.5, true);
    if (y.sum().item<float>() > 0) return y + at::rand({4});
    return at::dropout(y - at::randn({4}), 0.3, true);
  };
  const auto fast = compile(function, in_parts);
  for (int call = 0; call < 60; ++call) {
    const auto x = at::randn({4});
    at::manual_seed(call);
    const auto want = function(x);
    const auto after = at::rand({2});
    at::manual_seed(call);
    expect_near(fast(x), want, call);
    EXPECT_TRUE(at::equal(at::rand({2}), after)) << call;
  }
}

TEST(SplitFunctions, AModuleThatIsTrained) {
  struct Net : torch::nn::Module {
    Net() {
      a = register_module("a", torch::nn::Linear(5, 8));
      b = register_module("b", torch::nn::Linear(8, 1));
    }
    Tensor forward(const Tensor& x) {
      const auto h = a(x).relu();
      return h.sum().item<float>() > 10 ? b(h) : b(h.tanh()) * 2;
    }
    torch::nn::Linear a{nullptr}, b{nullptr};
  };
  const auto mine = std::make_shared<Net>(), theirs = std::make_shared<Net>();
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < mine->parameters().size(); ++i)
      theirs->parameters()[i].copy_(mine->parameters()[i]);
  }
  const auto fast = compile(theirs, in_parts);
  torch::optim::SGD one(mine->parameters(), 0.05), two(theirs->parameters(), 0.05);
  for (int step = 0; step < 40; ++step) {
    const auto x = at::randn({6, 5}), y = at::randn({6, 1});
    one.zero_grad();
    two.zero_grad();
    const auto want = (mine->forward(x) - y).square().mean(), got = (fast(x) - y).square().mean();
    expect_near(got, want, step);
    want.backward();
    got.backward();
    one.step();
    two.step();
  }
  for (size_t i = 0; i < mine->parameters().size(); ++i)
    expect_near(theirs->parameters()[i], mine->parameters()[i], 0);
}

TEST(SplitFunctions, ManyThreads) {
  const auto function = [](const Tensor& x) {
    const auto y = x.exp();
    return y.sum().item<float>() > 7 ? y.log() * 2 : y.sqrt();
  };
  const auto fast = compile(function, in_parts);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const at::NoGradGuard no_grad;
      for (int call = 0; call < 60; ++call) {
        const auto x = at::randn({4});
        if (!at::allclose(fast(x), function(x), 1e-4, 1e-5)) ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(SplitFunctions, PartsAreCompiledOnce) {
  const at::NoGradGuard no_grad;
  const auto fast = compile(
      [](const Tensor& x) {
        const auto y = x.exp();
        return y.sum().item<float>() > 0 ? y * 2 : y;
      },
      in_parts);
  fast(at::randn({4}));
  reset();
  for (int call = 0; call < 30; ++call) fast(at::randn({4}));
  EXPECT_EQ(counters().graphs, 2);
  EXPECT_EQ(counters().mismatches, 0);
}

}  // namespace
}  // namespace graft
