// Host values: what a function reads that is not a tensor may change between calls. The promise: with replay
// = every a call is what the function gives now, and its code runs once; with automatic a change is seen in
// the calls that the policy names.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>
#include <thread>

#include <ATen/autocast_mode.h>

#include "compiler/replay_policy.h"
#include "graft/compile.h"

namespace graft {
namespace {

using at::Tensor;

CompileOptions replayed(Replay replay = Replay::every) {
  CompileOptions options;
  options.replay = replay;
  options.split = true;
  options.recompile_limit = 64;
  return options;
}

void expect_close(const Tensor& got, const Tensor& want, int call) {
  ASSERT_EQ(got.sizes(), want.sizes()) << call;
  EXPECT_TRUE(at::allclose(got, want, 1e-4, 1e-5, /*equal_nan=*/true)) << "call " << call;
}

/// What a function may read on the host.
struct HostState {
  double scale = 1;
  bool flag = false;
  int64_t count = 0;
  Tensor member, last;
};

/// Calls the function with one state, and its compiled form with another; both change alike.
template <class F>
void expect_never_stale(F function, bool gradients, int calls = 200) {
  const at::AutoGradMode mode(gradients);
  HostState for_eager, for_compiled;
  const auto fast = compile([&](Tensor x) { return function(x, for_compiled); }, replayed());
  std::mt19937 random(7);
  for (int call = 0; call < calls; ++call) {
    if (random() % 4 == 0) {
      const double scale = 0.5 * static_cast<double>(1 + random() % 3);
      const bool flag = random() % 2 == 0;
      const auto member = at::full({4}, static_cast<double>(random() % 3));
      for (auto* state : {&for_eager, &for_compiled}) {
        state->scale = scale;
        state->flag = flag;
        state->member = member;
      }
    }
    const auto x = at::randn({3, 4});
    auto a = x.clone().set_requires_grad(gradients), b = x.clone().set_requires_grad(gradients);
    const auto want = function(a, for_eager), got = fast(b);
    expect_close(got, want, call);
    EXPECT_EQ(for_compiled.count, for_eager.count) << call;
    if (for_eager.last.defined()) expect_close(for_compiled.last, for_eager.last, call);
    if (gradients) {
      want.sum().backward();
      got.sum().backward();
      expect_close(b.grad(), a.grad(), call);
    }
    if (testing::Test::HasFailure()) return;
  }
}

class HostValues : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(WithAndWithoutGradients, HostValues, testing::Bool());

TEST_P(HostValues, ANumber) {
  expect_never_stale([](const Tensor& x, const HostState& s) { return (x * s.scale).exp() + s.scale; },
                     GetParam());
}

TEST_P(HostValues, ABranch) {
  expect_never_stale(
      [](const Tensor& x, const HostState& s) {
        const auto y = x.sin() * 2;
        return s.flag ? y.relu() : y.softmax(-1);
      },
      GetParam());
}

TEST_P(HostValues, ACounterWithAThreshold) {
  expect_never_stale(
      [](const Tensor& x, HostState& s) { return ++s.count % 17 > 8 ? x.tanh() * 3 : x.tanh() / 3; },
      GetParam());
}

TEST_P(HostValues, ATensorThatIsPutInAnothersPlace) {
  expect_never_stale(
      [](const Tensor& x, const HostState& s) {
        const auto y = x.cos();
        return s.member.defined() ? y + s.member : y;
      },
      GetParam());
}

TEST_P(HostValues, AnArgumentThatIsKept) {
  expect_never_stale(
      [](const Tensor& x, HostState& s) {
        s.last = x.detach();
        return x.exp().mul(s.scale);
      },
      GetParam());
}

/// Each call reads another tensor that the code keeps: an input that replays tell, of one program.
TEST_P(HostValues, TensorsThatKeepChangingAreInputs) {
  const at::AutoGradMode mode(GetParam());
  struct Kept {
    Tensor last, member;
  };
  const auto function = [](const Tensor& x, Kept& kept) {
    const auto y = (x * kept.member).tanh() + kept.last;
    kept.last = x.detach();
    return y * kept.member;
  };
  Kept mine{at::zeros({3, 4}), at::ones({4})}, theirs{mine.last.clone(), mine.member.clone()};
  const auto fast = compile([&](Tensor x) { return function(x, theirs); });
  reset();
  for (int call = 0; call < 60 && !testing::Test::HasFailure(); ++call) {
    if (call % 7 == 6) mine.member = at::randn({4}), theirs.member = mine.member.clone();
    if (call == 41) mine.last = at::randn({1, 4}), theirs.last = mine.last.clone();  // lies otherwise
    if (call == 51) mine.last = theirs.last = Tensor(mine.member);
    const auto x = at::randn({3, 4});
    auto a = x.clone().set_requires_grad(GetParam()), b = x.clone().set_requires_grad(GetParam());
    const auto want = function(a, mine), got = fast(b);
    expect_close(got, want, call);
    expect_close(theirs.last, mine.last, call);
    if (!GetParam()) continue;
    want.sum().backward();
    got.sum().backward();
    expect_close(b.grad(), a.grad(), call);
  }
  EXPECT_LE(counters().graphs, 4);
}

TEST_P(HostValues, AResultThatIsKeptAtTimes) {
  expect_never_stale(
      [](const Tensor& x, HostState& s) {
        const auto y = x.exp();
        if (s.flag) s.last = y.detach();
        return y.mul(2);
      },
      GetParam());
}

TEST_P(HostValues, AWriteBeforeWhatDiffers) {
  expect_never_stale(
      [](const Tensor& x, const HostState& s) {
        auto y = x * 2;
        auto row = y.select(0, 1);
        row.mul_(3);
        auto other = y.t();
        if (s.flag) row.add_(s.scale);
        other.mul_(x.t());
        return s.scale > 0.7 ? y + row : y;
      },
      GetParam());
}

TEST_P(HostValues, GradientsThatAreSwitchedOff) {
  expect_never_stale(
      [](const Tensor& x, const HostState& s) {
        const auto y = x.exp();
        at::AutoGradMode mode(!s.flag);
        return y * x.detach() + (s.flag ? x.sin() : x.cos()).detach() + y;
      },
      false);
}

TEST_P(HostValues, ALayersOptions) {
  torch::nn::LeakyReLU layer;
  expect_never_stale(
      [&](const Tensor& x, const HostState& s) {
        layer->options.negative_slope(s.scale * 0.1);
        return layer(x * 2);
      },
      GetParam());
}

TEST_P(HostValues, ValuesReadOnTheHostAtTimes) {
  expect_never_stale(
      [](const Tensor& x, HostState& s) {
        const auto y = x.tanh();
        if (s.flag) s.count += y.sum().item<double>() > 0;
        return y * s.scale;
      },
      GetParam());
}

TEST_P(HostValues, PointersThatAreReadAtTimes) {
  expect_never_stale(
      [](const Tensor& x, HostState& s) {
        const auto y = x.tanh().contiguous();
        const auto plain = y.detach();
        if (s.flag) s.count += plain.data_ptr<float>()[0] > 0;
        return y * s.scale;
      },
      GetParam());
}

TEST(Replay, ThrownAndCaught) {
  const at::NoGradGuard no_grad;
  int throws_at = 0, calls = 0;
  const auto function = [&](const Tensor& x) {
    ++calls;
    x.add_(1);
    if (throws_at > 0 && --throws_at == 0) throw std::runtime_error("stop");
    return x.exp();
  };
  const auto fast = compile(function, replayed());
  for (int call = 0; call < 20; ++call) {
    const auto x = at::randn({5}), want = x + 1;
    calls = 0;
    if (call % 5 == 4) {
      throws_at = 1;
      EXPECT_THROW(fast(x), std::runtime_error);
    } else {
      expect_close(fast(x), want.exp(), call);
    }
    expect_close(x, want, call);  // the write has happened, once
    EXPECT_EQ(calls, 1) << call;
  }
}

TEST(Replay, RandomNumbersAreDrawnOnce) {
  const at::NoGradGuard no_grad;
  bool flag = false;
  const auto function = [&](const Tensor& x) {
    const auto y = at::dropout(x, 0.5, true);
    return flag ? y * at::rand({4}) : y + at::rand({4});
  };
  const auto fast = compile(function, replayed());
  for (int call = 0; call < 40; ++call) {
    flag = call % 7 > 3;
    const auto x = at::randn({3, 4});
    at::manual_seed(call);
    const auto want = function(x);
    const auto after = at::rand({2});
    at::manual_seed(call);
    expect_close(fast(x), want, call);
    EXPECT_TRUE(at::equal(at::rand({2}), after)) << call;
  }
}

TEST(Replay, GivenHostValuesAreThoseOfTheCall) {
  const at::NoGradGuard no_grad;
  int64_t count = 0;
  const auto fast = compile([&](const Tensor& x) { return std::pair(x.exp(), ++count); }, replayed());
  for (int call = 1; call <= 20; ++call) EXPECT_EQ(fast(at::randn({3})).second, call);
}

/// torch's own guards around a call put back what they found.
TEST(Replay, LeavesAutogradAsItWas) {
  int calls = 0;
  const auto fast = compile(
      [&](const Tensor& x) {
        const auto y = x.exp();
        return ++calls % 3 == 0 ? y + torch::zeros({4}) : y;
      },
      replayed());
  for (int call = 0; call < 12; ++call) {
    {
      const at::NoGradGuard no_grad;
      fast(at::randn({4}));
    }
    EXPECT_TRUE((at::ones({2}).requires_grad_() * 2).requires_grad()) << call;
  }
}

TEST(Replay, ComesAndGoesWithoutCompilingAgain) {
  const at::NoGradGuard no_grad;
  bool flag = false;
  const auto fast = compile([&](const Tensor& x) { return flag ? x.exp() : x.sin(); }, replayed());
  reset();
  for (int call = 0; call < 60; ++call) {
    flag = call % 3 == 1;
    const auto x = at::randn({6});
    expect_close(fast(x), flag ? x.exp() : x.sin(), call);
  }
  EXPECT_EQ(counters().graphs, 2);
  EXPECT_EQ(counters().graph_breaks, 0);
  EXPECT_GT(counters().replay_differences, 5);
}

TEST(Replay, ManyThreadsManyStates) {
  struct Own {
    double scale = 1;
  };
  thread_local Own own;
  const auto fast = compile([](const Tensor& x) { return (x * own.scale).exp(); }, replayed());
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const at::NoGradGuard no_grad;
      for (int call = 0; call < 50; ++call) {
        own.scale = 1 + (t + call / 10) % 3;
        const auto x = at::randn({4});
        if (!at::allclose(fast(x), (x * own.scale).exp(), 1e-4, 1e-5)) ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

/// A number that changes all the time is an input of one program, with its gradients.
TEST_P(HostValues, NumbersThatKeepChangingAreInputs) {
  const bool gradients = GetParam();
  const at::AutoGradMode mode(gradients);
  double temperature = 1, shift = 0;
  int64_t steps = 0;
  const auto function = [&](const Tensor& x) {
    return ((x / temperature).softmax(-1) * steps - shift).square().mul(temperature).sum(-1);
  };
  const auto fast = compile(function, replayed(Replay::automatic));
  reset();
  for (int call = 0; call < 100; ++call) {
    if (call >= 40) temperature = 1 + 0.01 * call, shift = -0.01 * call, steps = 1 + call % 5;
    const auto x = at::randn({3, 4});
    auto a = x.clone().set_requires_grad(gradients), b = x.clone().set_requires_grad(gradients);
    const auto want = function(a), got = fast(b);
    if (call < 40 || call >= 64) expect_close(got, want, call);  // 64: the next look after the change
    if (!gradients) continue;
    want.sum().backward();
    got.sum().backward();
    if (call < 40 || call >= 64) expect_close(b.grad(), a.grad(), call);
  }
  EXPECT_EQ(counters().graphs, 2);
  EXPECT_EQ(counters().graph_breaks, 0);
}

/// A literal of another dtype takes another way through type promotion.
TEST(Replay, ANumberOfAnotherKindIsAnotherProgram) {
  const at::NoGradGuard no_grad;
  bool whole = true;
  const auto function = [&](const Tensor& x) { return whole ? x * 2 : x * 2.5; };
  const auto fast = compile(function, replayed());
  for (int call = 0; call < 30; ++call) {
    whole = call % 3 == 0;
    const auto x = at::arange(6);
    const auto got = fast(x), want = function(x);
    EXPECT_EQ(got.scalar_type(), want.scalar_type()) << call;
    expect_close(got, want, call);
  }
}

/// Hooks, wishes for gradients and backward passes in calls that were recorded without them.
TEST(Replay, AutogradsPartThatComesLater) {
  bool hooks = false, wants = false, goes_back = false;
  int hooked = 0;
  Tensor kept;
  const auto function = [&](const Tensor& x) {
    auto y = x.exp();
    if (hooks) y.register_hook([&](const Tensor&) { ++hooked; });
    auto z = y.detach() * 2;
    if (wants) z.requires_grad_();
    auto out = y * z.sin();
    if (goes_back) kept = torch::autograd::grad({out.sum()}, {x}, {}, /*retain_graph=*/true)[0];
    return out;
  };
  const auto fast = compile(function, replayed());
  for (int call = 0; call < 60; ++call) {
    hooks = call % 5 == 4;
    wants = call % 7 == 6;
    goes_back = call % 11 == 10;
    const auto x = at::randn({3, 4});
    auto a = x.clone().set_requires_grad(true), b = x.clone().set_requires_grad(true);
    const auto want = function(a);
    const auto kept_by_eager = std::exchange(kept, {});
    const auto got = fast(b);
    expect_close(got, want, call);
    hooked = 0;
    want.sum().backward();
    EXPECT_EQ(hooked, hooks) << call;
    got.sum().backward();
    EXPECT_EQ(hooked, 2 * hooks) << call;
    expect_close(b.grad(), a.grad(), call);
    ASSERT_EQ(kept.defined(), goes_back) << call;
    if (goes_back) expect_close(kept, kept_by_eager, call);
    kept.reset();
    if (testing::Test::HasFailure()) return;
  }
}

/// What the code puts aside at times has the history that eager code gives it.
TEST(Replay, AnIntermediateThatIsKeptAtTimesIsConnected) {
  Tensor kept;
  bool keeps = false;
  const auto fast = compile(
      [&](const Tensor& x) {
        const auto y = x.sin();
        if (keeps) kept = y;
        return y * 3;
      },
      replayed());
  for (int call = 0; call < 40; ++call) {
    keeps = call % 6 == 5;
    auto x = at::randn({4}).set_requires_grad(true);
    const auto out = fast(x);
    expect_close(out, x.sin() * 3, call);
    if (!keeps) continue;
    expect_close(kept, x.sin(), call);
    const auto gradient = torch::autograd::grad({out.sum()}, {kept}, {}, true)[0];
    expect_close(gradient, at::full({4}, 3.0), call);
    kept.reset();
  }
}

TEST(Replay, CastsAreNotCached) {
  auto weight = at::randn({4, 4}).set_requires_grad(true);
  bool flag = false;
  const auto fast = compile(
      [&](const Tensor& x) {
        const auto y = at::mm(x, weight);
        return flag ? at::mm(y, weight).relu() : at::mm(y, weight);
      },
      replayed());
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  for (int call = 0; call < 24; ++call) {
    flag = call % 5 > 2;
    const auto x = at::randn({3, 4});
    const auto want = at::mm(at::mm(x, weight), weight);
    const auto got = fast(x);
    EXPECT_TRUE(at::allclose(got.to(at::kFloat), (flag ? want.relu() : want).to(at::kFloat), 0.05, 0.05))
        << call;
    at::autocast::clear_cache();
  }
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

/// Programs that write into buffers are not replayed: the calls of the policy are watched instead.
TEST(Replay, AFunctionThatWritesIsWatchedAtTimes) {
  torch::nn::BatchNorm1d norm(4);
  double scale = 1;
  const auto fast =
      compile([&](const Tensor& x) { return norm(x) * scale; }, replayed(Replay::automatic), {norm.ptr()});
  for (int call = 1; call <= 80; ++call) {
    if (call == 20) scale = 2;
    if (call > 32) scale = 3 + call % 2;  // never old once a change was seen
    const auto x = at::randn({8, 4});
    const auto want = (x - x.mean(0)) / (x.var(0, false) + 1e-5).sqrt() * scale;
    const auto got = fast(x).detach();
    if (call < 20 || call >= 32) expect_close(got, want, call);
  }
}

/// Each is seen in a call that is looked at, and never again in the watched ones right after it.
TEST(Replay, FlagsThatAreSetForSingleCalls) {
  for (const int period : {2, 5, 7, 11, 16, 40}) {
    SCOPED_TRACE(period);
    bool flag = false;
    const auto fast =
        compile([&](const Tensor& x) { return flag ? x.sin() : x.cos(); }, replayed(Replay::automatic));
    bool seen = false;
    for (int call = 1; call <= 400; ++call) {
      flag = call % period == 0 || call == 8;
      const auto x = at::randn({4, 3});
      const auto got = fast(x);
      seen |= flag && call >= 8;
      if (seen) expect_close(got, flag ? x.sin() : x.cos(), call);
    }
  }
}

/// What autograd alone sees is part of a path.
TEST(Replay, ADetachThatComesAndGoes) {
  bool detaches = false;
  const auto function = [&](const Tensor& x) {
    auto y = x * 2;
    if (detaches) y.detach_();
    auto z = y.sin();
    if (!z.requires_grad()) z.requires_grad_();
    return z * 1;
  };
  const auto fast = compile(function, replayed());
  for (int call = 1; call <= 60; ++call) {
    detaches = call > 2 && (call % 5 == 4 || call % 5 == 0);
    const auto x = at::randn({3});
    auto a = x.clone().set_requires_grad(true), b = x.clone().set_requires_grad(true);
    const auto want = function(a), got = fast(b);
    expect_close(got, want, call);
    want.sum().backward();
    got.sum().backward();
    ASSERT_EQ(a.grad().defined(), b.grad().defined()) << call;
    if (a.grad().defined()) expect_close(b.grad(), a.grad(), call);
  }
}

/// Without gradients for a while, on a tensor of its own: code that can be replayed all the same.
TEST(Replay, AWriteWithoutGradients) {
  double scale = 1;
  const auto function = [&](const Tensor& x) { return at::cosine_similarity(x, x * 2, 1) * scale; };
  const auto fast = compile(function, replayed(Replay::automatic));
  reset();
  for (int call = 1; call <= 40; ++call) {
    if (call == 4) scale = 5;
    auto x = at::randn({4, 8}).requires_grad_();
    const auto got = fast(x);
    expect_close(got, function(x), call);
  }
  EXPECT_GT(counters().replays, 30);
}

TEST(Replay, DeclaredStateIsAskedInEveryCall) {
  double beta = 1;
  int64_t step = 0, looks = 0;
  Tensor member = at::ones({3});
  CompileOptions options;
  options.recompile_limit = 64;
  options.state = [&] { return std::tuple(beta, step > 5, member); };
  const auto fast = compile(
      [&](const Tensor& x) {
        ++looks;
        return step > 5 ? x * beta + member : x - beta * member;
      },
      options);
  reset();
  for (int call = 0; call < 60; ++call) {
    beta = 1 + call / 20;
    step = call % 12;
    member = at::full({3}, static_cast<double>(call));
    const auto x = at::randn({3});
    expect_close(fast(x), step > 5 ? x * beta + member : x - beta * member, call);
  }
  EXPECT_EQ(counters().graphs, 6);
  EXPECT_EQ(looks, 12);  // two of each program
}

TEST(Replay, AutomaticSeesAChangeWhenItsPolicySays) {
  const at::NoGradGuard no_grad;
  double scale = 1;
  int looks = 0;
  const auto fast = compile(
      [&](const Tensor& x) {
        ++looks;
        return x * scale;
      },
      replayed(Replay::automatic));
  const auto x = at::ones({2});
  for (int call = 1; call <= 20; ++call) fast(x);
  EXPECT_EQ(looks, 2 + 5);  // 3, 4, 6, 8, 16
  scale = 2;
  for (int call = 21; call < 32; ++call) fast(x);
  EXPECT_EQ(fast(x)[0].item<float>(), 2);  // the 32nd
  for (int call = 0; call < 20; ++call) {
    scale = 3 + call % 2;
    EXPECT_EQ(fast(x)[0].item<float>(), scale);
  }
}

TEST(Replay, OffNeverRunsTheCodeAgain) {
  int looks = 0;
  const auto fast = compile(
      [&](const Tensor& x) {
        ++looks;
        return x.exp();
      },
      replayed(Replay::off));
  for (int call = 0; call < 40; ++call) fast(at::ones({2}));
  EXPECT_EQ(looks, 2);
}

TEST(Replay, PolicyFollowsTheTimes) {
  ReplayPolicy policy;
  std::vector<int64_t> due;
  for (int64_t call = 3; call <= 2000; ++call)
    if (policy.is_due(call, Replay::automatic)) due.push_back(call);
  EXPECT_EQ(due, (std::vector<int64_t>{3, 4, 6, 8, 16, 32, 64, 128, 256, 512, 1000, 1024, 2000}));
  policy.note_times(0.9e-2, 1);
  EXPECT_TRUE(policy.is_due(5, Replay::automatic));
  policy.note_times(1.1e-2, 1);
  EXPECT_FALSE(policy.is_due(5, Replay::automatic));
  policy.note_change();
  EXPECT_TRUE(policy.is_due(5, Replay::automatic));
  EXPECT_FALSE(policy.is_due(5, Replay::off));
}

}  // namespace
}  // namespace graft
