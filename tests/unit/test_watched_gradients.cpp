// Gradients of compiled functions that do more than compute: memory that is written before the backward pass,
// outputs that nobody differentiates, backward passes with effects of their own.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/autograd.h>
#include <torch/optim/sgd.h>

#include "watched_state.h"

namespace graft {
namespace {

using namespace watched_state;

TEST(WatchedGradients, GradientsWithQuestionsToTheData) {
  const auto prod = [](Tensor x) { return (x - 2).prod(); };
  const auto rows = [](Tensor x) { return (x.view({2, 3}) - 2).prod(1).sum(); };
  const auto sign = [](Tensor x) { return (x.sgn() * x).sum(); };
  const auto only_sign = [](Tensor x) { return x.sgn().sum(); };
  for (const auto& f : {std::function<Tensor(Tensor)>(prod), std::function<Tensor(Tensor)>(rows),
                        std::function<Tensor(Tensor)>(sign), std::function<Tensor(Tensor)>(only_sign)}) {
    const auto fast = compile(f, {.fullgraph = true});
    for (int i = 0; i < 6; ++i) {
      const auto x = with_gradient(i % 3), y = with_gradient(i % 3);
      fast(x).backward();
      f(y).backward();
      expect_same(x.grad(), y.grad());
    }
  }
  expect_same_calls([](Tensor x) { return at::rrelu(-x, 0.1, 0.7, /*training=*/false); }, numbers);
  expect_same_calls([](Tensor x) { return at::rrelu(-x, 0.1, 0.7, /*training=*/true); }, numbers);
}

/// Eager code has saved sin(x); the compiled backward pass computes it again.
template <class Write>
void expect_error_or_the_same(Write write) {
  const auto f = [](Tensor x, Tensor w) { return ((x * w).sin() * x.cos().exp()).tanh(); };
  const auto fast = compile(f);
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    const auto gradient = [&](const auto& function) {
      auto x = with_gradient(i), w = at::full({6}, 0.5f).requires_grad_();
      auto y = function(x, w);
      write(x, w);
      return torch::autograd::grad({y.sum()}, {x, w})[0];
    };
    try {
      expect_same(gradient(fast), gradient(f));
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("changed in place"), std::string::npos) << error.what();
    }
  }
}

TEST(WatchedGradients, MemoryWrittenPastTheVersionBeforeTheBackwardPass) {
  expect_error_or_the_same([](const Tensor&, const Tensor& w) { w.data().mul_(3); });
  expect_error_or_the_same([](const Tensor& x, const Tensor&) { x.data().add_(1); });
  expect_error_or_the_same([](const Tensor&, const Tensor& w) {
    w.mutable_grad() = at::ones({6});
    torch::optim::SGD({w}, torch::optim::SGDOptions(1.0)).step();
    w.mutable_grad() = Tensor();
  });
  expect_error_or_the_same([](const Tensor& x, const Tensor&) { static_cast<float*>(x.data_ptr())[5] = 7; });
  expect_error_or_the_same([](Tensor x, const Tensor&) { x.set_data(at::ones({6})); });
  expect_error_or_the_same(
      [](Tensor x, const Tensor&) { x.set_data(at::arange(12, at::kFloat).slice(0, 0, 12, 2)); });
}

/// Gradients that lie in one memory, and are added to later.
TEST(WatchedGradients, GradientsAreMemoryOfTheirOwn) {
  const auto f = [](Tensor a, Tensor b) { return (a.view({9}) + b).tanh().sum(); };
  const auto fast = compile(f);
  const auto leaf = [](at::IntArrayRef sizes) {
    return (at::arange(9, at::kFloat) * 0.1).view(sizes).clone().requires_grad_();
  };
  const auto a = leaf({3, 3}), b = leaf({9}), x = leaf({3, 3}), y = leaf({9});
  for (int i = 0; i < 5; ++i) {
    fast(a, b).backward();
    f(x, y).backward();
    expect_same(a.grad(), x.grad());
    expect_same(b.grad(), y.grad());
  }
}

/// As eager code: 0 times infinity does not count, and what only that output needs gets no gradient.
TEST(WatchedGradients, OutputsThatNobodyDifferentiates) {
  const auto f = [](Tensor x, Tensor w) {
    return Tensors{x * 2, (x * w).exp(), at::stack({x * 3, w * 5}).unbind()[0] + x};
  };
  const auto fast = compile(f);
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const auto gradients = [&](const auto& function) {
      const auto x = with_gradient(i % 4), w = (numbers(i) * (i < 4 ? 1 : 1e30)).requires_grad_();
      const auto y = function(x, w);
      const auto used = i % 3 == 0   ? Tensors{y[0].sum()}
                        : i % 3 == 1 ? Tensors{y[2].sum(), y[0].sum()}
                                     : Tensors{y[2].sum()};
      return torch::autograd::grad(used, {x, w}, {}, /*retain_graph=*/true, false, /*allow_unused=*/true);
    };
    const auto got = gradients(fast), want = gradients(f);
    for (size_t k = 0; k < want.size(); ++k) {
      ASSERT_EQ(got[k].defined(), want[k].defined()) << k;
      if (want[k].defined()) expect_same(got[k], want[k]);
    }
  }
}

/// As eager code: the second backward pass is possible where the two outputs' histories have nothing saved in
/// common, or the first one retains the graph.
TEST(WatchedGradients, ABackwardPassForEachOutput) {
  using Function = std::function<Tensors(Tensor, Tensor)>;
  const Function functions[] = {
      [](Tensor x, Tensor w) { return Tensors{x.sin(), (w * w).exp(), x.cos() * 2}; },
      [](Tensor x, Tensor w) { return Tensors{x * w, x.exp() * w, w * 3}; },
      [](Tensor x, Tensor w) {
        const auto trunk = (x * w).tanh();
        return Tensors{trunk.exp(), trunk.neg(), (w + 1).sin()};
      },
      [](Tensor x, Tensor w) {
        const auto trunk = x + w;
        return Tensors{trunk * w, trunk.sum(), at::cat({trunk, x})};
      },
      [](Tensor x, Tensor w) {
        const auto hidden = x.sigmoid();
        return Tensors{hidden, hidden * w, w.neg()};
      },
  };
  constexpr size_t orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 1, 0}, {0, 2, 1}, {2, 2, 2}, {1, 0, 2}};
  for (size_t which = 0; which < std::size(functions); ++which) {
    const auto& f = functions[which];
    const auto fast = compile(f);
    for (int i = 0; i < 24; ++i) {
      SCOPED_TRACE("function " + std::to_string(which) + ", call " + std::to_string(i));
      const auto gradients = [&](const Function& function) {
        Tensors found;
        const auto x = with_gradient(i % 5), w = (numbers(i % 5) * 0.1 + 0.3).requires_grad_();
        const auto y = function(x, w);
        for (size_t k = 0; k < 3; ++k) try {
            const bool retain = k == 0 && i % 2 == 1;
            for (const auto& g :
                 torch::autograd::grad({y[orders[i / 4][k]].sum()}, {x, w}, {}, retain, false, true))
              found.push_back(g.defined() ? g : at::full({6}, -1.0f));
          } catch (const std::exception&) {
            found.push_back(at::full({1}, -2.0f));  // the pass is an error
          }
        return found;
      };
      const auto got = gradients(fast), want = gradients(f);
      ASSERT_EQ(got.size(), want.size());
      for (size_t k = 0; k < want.size(); ++k) expect_same(got[k], want[k]);
    }
  }
}

/// What only the outputs need that have been differentiated goes at once, as in eager code.
TEST(WatchedGradients, ABackwardPassLetsGoOfWhatOtherOutputsDoNotNeed) {
  const auto fast = compile([](Tensor x, Tensor w) { return Tensors{x.exp() * w.sum(), w.sin()}; });
  for (int i = 0; i < 4; ++i) {
    auto x = with_gradient(i) + 1, w = with_gradient(i + 1) + 1;
    const auto results = fast(x, w);
    const c10::weak_intrusive_ptr<c10::TensorImpl> argument(x.getIntrusivePtr());
    results[0].sum().backward();
    x = Tensor();
    if (i > 1) EXPECT_TRUE(argument.expired());
    results[1].sum().backward();
    EXPECT_THROW(results[1].sum().backward(), std::exception);
  }
}

/// Such a backward pass is a program of its own, made when it is first asked for: the next call is watched.
TEST(WatchedGradients, BackwardPassesOfSomeOutputsAreComparedWithEager) {
  int runs = 0;
  const auto f = [&runs](Tensor x) {
    ++runs;
    return std::vector<Tensor>{x.sin(), (x * x).exp()};
  };
  const auto fast = compile(f, {.fullgraph = true, .replay = Replay::off});
  const auto runs_of = [&](size_t first, size_t last) {
    const auto x = with_gradient(0), y = with_gradient(0);
    const int before = runs;
    const auto got = fast(x);
    const int watched = runs - before;
    const auto want = f(y);
    const auto backward = [&](const std::vector<Tensor>& outputs) {
      auto sum = outputs[first].sum();
      for (size_t i = first + 1; i < last; ++i) sum = sum + outputs[i].sum();
      sum.backward();
    };
    backward(got);
    backward(want);
    expect_same(x.grad(), y.grad());
    return watched;
  };
  EXPECT_EQ(runs_of(0, 1), 1);
  EXPECT_EQ(runs_of(0, 1), 1);
  EXPECT_EQ(runs_of(0, 1), 0);
  EXPECT_EQ(runs_of(1, 2), 0);
  EXPECT_EQ(runs_of(0, 1), 1);
  EXPECT_EQ(runs_of(1, 2), 0);
  EXPECT_EQ(runs_of(0, 2), 0);
}

TEST(WatchedGradients, AGradientOfZerosIsThere) {
  const auto f = [](Tensor x) {
    const auto wide = x.to(at::kDouble), drawn = wide + 3;
    return Tensors{wide, drawn.bernoulli_(0.5)};
  };
  const auto fast = compile(f);
  for (int i = 0; i < 4; ++i) {
    const auto x = with_gradient(i);
    expect_same(torch::autograd::grad({fast(x)[1].sum()}, {x}, {}, {}, false, true)[0], at::zeros({6}));
  }
}

/// The gradient is all rounding, so runs with rounding put in judge it.
TEST(WatchedGradients, ANormOfOneNumberRepeatedIsRounding) {
  const auto norm = [](Tensor x) { return at::layer_norm(x, {x.size(-1)}); };
  const auto fast = compile(norm);
  for (int i = 1; i < 7; ++i) {
    const auto x = at::full({1}, i / 3.0, at::kDouble).expand({3});
    EXPECT_LT(fast(x).abs().max().item<double>(), 1e-12) << i;
  }
}

TEST(WatchedGradients, SumsThatOverflowInSomeOrder) {
  const auto f = [](Tensor x) { return x.sum().expand({3}) * 1; };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    // In eager's order, by lanes, some partial sums are infinite.
    const auto x = at::tensor({3e38f, -3e38f}).repeat({40}).roll(i);
    x.slice(0, 0, 8 + i).fill_(2e38f);
    EXPECT_NO_THROW(fast(x)) << i;
  }
}

TEST(WatchedGradients, AWriteWithAHistoryThroughADetachedArgument) {
  const auto f = [](Tensor x, Tensor y) { return x.detach().add_(y); };
  const auto fast = compile(f);
  for (int i = 0; i < 4; ++i) {
    const auto x = numbers(i), mine = x.clone(), y = with_gradient(i);
    const auto got = fast(mine, y);
    expect_same(got, f(x, y));
    expect_same(mine, x);
    EXPECT_TRUE(got.requires_grad());
  }
}

TEST(WatchedGradients, AWriteWithAHistoryThroughADetachedOutput) {
  const auto f = [](Tensor x, Tensor y) {
    const auto v = x * 2;
    return Tensors{v, v.detach().sub_(y)};
  };
  const auto fast = compile(f);
  for (int i = 0; i < 4; ++i) {
    const auto got = fast(with_gradient(i), with_gradient(i + 1)),
               want = f(with_gradient(i), with_gradient(i + 1));
    for (size_t k = 0; k < got.size(); ++k) expect_same(got[k], want[k]);
    EXPECT_TRUE(got[1].requires_grad());
  }
}

TEST(WatchedGradients, NumbersThatNobodyUsesAreDrawnInTheForwardPass) {
  const auto w = at::ones({6}).requires_grad_();
  const auto f = [w](Tensor x) {
    const auto made = w + 1;  // its gradient is the tangent as it is
    at::randint_like(x, 4);
    return made;
  };
  const auto fast = compile(f, {.fullgraph = true});
  for (int i = 0; i < 4; ++i) {
    at::manual_seed(i);
    f(numbers(i));
    const auto want = at::rand({3});
    at::manual_seed(i);
    fast(numbers(i));
    expect_same(at::rand({3}), want);
  }
}

TEST(WatchedGradients, NotWhereNoUsedOutputLeadsThere) {
  const auto fast = compile([](Tensor x, Tensor y) {
    auto v = x * 2;
    v.copy_(v.cumsum(0));  // what was there has a gradient of zeros, if v is used
    return Tensors{v, y * 3};
  });
  for (int i = 0; i < 6; ++i) {
    const auto x = with_gradient(i), y = with_gradient(i);
    fast(x, y)[1].sum().backward();
    EXPECT_FALSE(x.grad().defined()) << i;
    expect_same(y.grad(), at::full({6}, 3.f));
  }
}

TEST(WatchedGradients, JudgingLeavesTheGeneratorAlone) {
  const auto fast = compile([](Tensor x) { return at::maximum(x.sum(), x).softmax(0); });
  const auto generator = at::detail::getDefaultCPUGenerator();
  for (int i = 0; i < 4; ++i) {
    at::manual_seed(i);
    const auto x = at::rand({3, 17}, at::kDouble).add_(0.5).requires_grad_();
    const auto before = generator.get_state();
    fast(x);
    EXPECT_TRUE(at::equal(generator.get_state(), before));
  }
}

struct CountsInBackward : torch::autograd::Function<CountsInBackward> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& seen) {
    context->save_for_backward({seen});
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    context->get_saved_variables()[0].add_(gradients[0].abs().sum());
    return {gradients[0] * 2, Tensor()};
  }
};
struct DrawsInBackward : torch::autograd::Function<DrawsInBackward> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 2 + at::randn_like(gradients[0])};
  }
};

/// A capture runs the backward pass to see what it does; nobody may notice.
TEST(WatchedGradients, BackwardPassesThatDoMoreThanCompute) {
  const auto seen = at::zeros({}), want_seen = at::zeros({});
  const auto counts = [](const Tensor& count) {
    return [count](Tensor x) { return CountsInBackward::apply(x, count).sum(); };
  };
  const auto fast = compile(counts(seen)),
             fast_draws = compile([](Tensor x) { return DrawsInBackward::apply(x).sum(); });
  for (int i = 0; i < 5; ++i) {
    auto x = with_gradient(i), y = with_gradient(i);
    fast(x).backward();
    counts(want_seen)(y).backward();
    expect_same(seen, want_seen);
    expect_same(x.grad(), y.grad());
    for (auto* t : {&x, &y}) {
      at::manual_seed(i);
      t->mutable_grad() = Tensor();
      (t == &x ? fast_draws(x) : DrawsInBackward::apply(y).sum()).backward();
    }
    expect_same(x.grad(), y.grad());
  }
}

/// The backward pass of the one output does not need what was changed; that of the other does.
TEST(WatchedGradients, WhatABackwardPassOfSomeOutputsDoesNotNeedMayChange) {
  const auto w = at::ones({6}).mul(2).requires_grad_();
  const auto fast = compile([w](Tensor x) { return Tensors{at::minimum(w, x) * x.sin(), w * 3}; });
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    auto held = numbers(i);
    const auto results = fast(held);
    held.add_(1);
    expect_same(torch::autograd::grad({results[1].sum()}, {w}, {}, /*retain_graph=*/true)[0],
                at::full({6}, 3.0f));
    EXPECT_THROW(torch::autograd::grad({results[0].sum()}, {w}), std::exception);
  }
}

/// Parts of one memory share a version, and the call itself writes into one of them.
TEST(WatchedGradients, ABackwardPassThatNeedsAnotherPartOfTheMemoryThatIsWritten) {
  const auto w = at::ones({2, 2}).requires_grad_();
  const auto f = [w](Tensor x, Tensor y) {
    x.diagonal().fill_(3);
    return at::where(y.gt(0), x, w);
  };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    const auto memory = numbers(i), other = memory.clone();
    const auto parts = [](const Tensor& t) {
      return std::pair(t.slice(0, 2).view({2, 2}), t.slice(0, 0, 2));
    };
    const auto [x, y] = parts(memory);
    const auto [p, q] = parts(other);
    const auto got = fast(x, y), want = f(p, q);
    expect_same(torch::autograd::grad({got.sum()}, {w})[0], torch::autograd::grad({want.sum()}, {w})[0]);
    expect_same(memory, other);
  }
}

/// A view of a parameter that is itself a part of some memory: a write into another part gives the view's
/// history up in eager code, in what is returned and in what is computed from it.
TEST(WatchedGradients, AViewMadeBeforeAnotherPartOfItsMemoryIsWritten) {
  struct State {
    Tensor memory, part, parameter;
    explicit State(int64_t size)
        : memory(at::arange(8.0f)),
          part(memory.slice(0, 4, 4 + size)),
          parameter(memory.slice(0, 0, size).requires_grad_()) {}
  };
  for (const int64_t size : {0, 4}) {
    State mine(size), theirs(size);
    const auto function = [](const State& state) {
      return [&state](Tensor x) {
        const auto early = state.parameter.view({2, -1});
        x.mul_(2);
        return Tensors{early, early * 3, state.parameter.view({-1, 2})};
      };
    };
    const auto f = function(theirs);
    const auto fast = compile(function(mine));
    for (int i = 0; i < 12; ++i) {
      SCOPED_TRACE(i);
      const bool is_part = i > 2 && i % 4 < 2;
      const auto x = is_part ? mine.part : at::ones({size}), y = is_part ? theirs.part : at::ones({size});
      const auto got = fast(x), want = f(y);
      for (size_t k = 0; k < want.size(); ++k) {
        const auto gradient = [k](const Tensors& results, const State& state) {
          return torch::autograd::grad({results[k].sum()}, {state.parameter}, {}, true, false, true)[0];
        };
        EXPECT_EQ(got[k].requires_grad(), want[k].requires_grad());
        const auto g = gradient(got, mine), w = gradient(want, theirs);
        ASSERT_EQ(g.defined(), w.defined()) << k;
        if (w.defined()) expect_same(g, w);
      }
      expect_same(mine.memory, theirs.memory);
    }
  }
}

/// A backward pass by some outputs: the judge's graph has zeros for the others, and zero times infinity is
/// NaN.
TEST(WatchedGradients, SomeOutputsOfWhatIsInfinite) {
  const auto c = at::tensor({0.7f, -1.1f, 0.4f, 1.3f}).view({1, 2, 2});
  const auto f = [c](Tensor x) {
    const auto y = c * x;
    return Tensors{y.matmul(y.transpose(-1, -2)), at::layer_norm(y, {2})};
  };
  at::manual_seed(5);
  for (int i = 0; i < 30; ++i) {
    const auto fast = compile(f);
    for (int call = 0; call < 3; ++call) {
      auto x = at::randn({1, 2, 2}) * 0.2;
      if (call > 0) x[0][1][0] = INFINITY;
      x.requires_grad_();
      // The gradient of a norm of two numbers is nearly nothing, and half of that is rounding.
      const auto got =
          torch::autograd::grad({fast(x)[1]}, {x}, {at::tensor({1.f, 2.f}).expand({1, 2, 2})})[0];
      EXPECT_TRUE(got[0][0].isfinite().all().item<bool>()) << i;
      EXPECT_EQ(got[0][1].isnan().all().item<bool>(), call > 0) << i;
    }
  }
}

/// The largest element is found again by its value, also where that is a float made of halves.
TEST(WatchedGradients, TheLargestOfWhatHalvesWereOnTheWayTo) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto f = [](Tensor w) { return 1 - (w.sum(1).to(at::kFloat) * 3).amax(0, true); };
    const auto fast = compile(f);
    for (int i = 0; i < 8; ++i) {
      const auto w = numbers(i).view({2, 3}).div(3).to(dtype).requires_grad_(),
                 same = w.detach().clone().requires_grad_();
      fast(w).sum().backward();
      f(same).sum().backward();
      EXPECT_TRUE(at::allclose(w.grad(), same.grad(), 1e-2, 1e-2)) << i << "\n" << w.grad() << same.grad();
    }
  }
}

/// The distance from a mean of one number is zero, also where the number is a half that a kernel computes.
TEST(WatchedGradients, TheVarianceOfOneHalf) {
  for (const auto dtype : {at::kBFloat16, at::kHalf})
    for (const int64_t n : {1, 2}) {
      const auto f = [](Tensor x) {
        return Tensors{at::silu(x).var({0}, 1), at::silu(x) - at::silu(x).mean(0, true)};
      };
      const auto fast = compile(f);
      for (int i = 0; i < 6; ++i) {
        SCOPED_TRACE(i);
        const auto x = numbers(i).slice(0, 0, n).div(3).to(dtype).requires_grad_(),
                   same = x.detach().clone().requires_grad_();
        const auto results = fast(x), expected = f(same);
        EXPECT_TRUE(at::allclose(results[1], expected[1], 0, n == 1 ? 0 : 1e-2));
        results[0].sum().backward();
        expected[0].sum().backward();
        EXPECT_TRUE(at::allclose(x.grad(), same.grad(), 3e-2, 3e-2, /*equal_nan=*/true))
            << x.grad() << same.grad();
      }
    }
}

TEST(WatchedGradients, HistoriesThatAGraphDoesNotShow) {
  const auto w = at::ones({6}).requires_grad_();
  const auto sets_mode = [w](Tensor x) {
    const at::AutoGradMode mode(true);
    return x * w;
  };
  const auto fast = compile(sets_mode);
  const auto norm = [](Tensor x) { return at::linalg_vector_norm(x, 0); };
  for (int i = 0; i < 4; ++i) {
    const at::NoGradGuard no_grad;
    expect_same(fast(numbers(i)), sets_mode(numbers(i)));
  }
  expect_same_calls(norm, with_gradient);
  auto out = at::empty({0});
  const auto resizes = compile([](Tensor x, Tensor y) { return at::add_out(y, x, x); }, {.fullgraph = true});
  EXPECT_THROW(resizes(numbers(0), out), GraphBreak);
  EXPECT_EQ(out.numel(), 0);
}

/// A backward pass of some outputs is compared in the next watched call, which may take another path.
TEST(WatchedGradients, BackwardPassesOfSomeOutputsOnTwoPaths) {
  bool flag = true;
  const auto function = [&](const Tensor& x) -> std::vector<Tensor> {
    if (flag) return {x.exp(), x.sin(), x * 3};
    return {x.tanh(), x.detach() * 2, x.detach().cos()};
  };
  const auto fast = compile(function, {.replay = Replay::every});
  at::manual_seed(9);
  for (int call = 0; call < 80; ++call) {
    flag = at::rand({}).item<double>() < 0.6;
    const auto used = at::randint(1, 8, {}).item<int64_t>();
    const auto x = at::randn({3, 4});
    Tensor gradients[2];
    for (const bool compiled : {false, true}) {
      auto given = x.clone().set_requires_grad(true);
      const auto made = compiled ? fast(given) : function(given);
      Tensor sum = given.sum() * 0;
      for (size_t i = 0; i < made.size(); ++i)
        if ((used >> i & 1) && made[i].requires_grad())
          sum = sum + made[i].sum() * static_cast<double>(i + 1);
      sum.backward();
      gradients[compiled] = given.grad();
    }
    expect_same(gradients[1], gradients[0]);
  }
}

}  // namespace
}  // namespace graft
