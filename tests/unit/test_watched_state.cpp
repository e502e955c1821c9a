// What a function does besides computing: seeds, hooks, modes, variables of the caller's, tensors that change
// their sizes. Either a program does the same, or the function runs as it is.
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/optim/sgd.h>

#include <map>
#include <set>
#include <thread>

#include "graft/compile.h"

namespace graft {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

void expect_same(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  EXPECT_EQ(got.requires_grad(), want.requires_grad());
  EXPECT_TRUE(at::allclose(got.detach().to(at::kDouble), want.detach().to(at::kDouble), 1e-5, 1e-6, true))
      << got << " should be " << want;
}

/// Calls both on the same numbers, six times. `x` is made anew for each of them.
template <class F, class X>
void expect_same_calls(F f, X x) {
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    at::manual_seed(i);
    const auto want = f(x(i));
    at::manual_seed(i);
    expect_same(fast(x(i)), want);
  }
}

const auto numbers = [](int i) { return at::arange(6, at::kFloat) + i; };
const auto with_gradient = [](int i) { return numbers(i).requires_grad_(); };

TEST(WatchedState, AnEmptyTensorThatAnOperatorGivesSizes) {
  expect_same_calls(
      [](Tensor x) {
        auto out = at::empty({0});
        at::add_out(out, x, x);
        return out * 2;
      },
      numbers);
  expect_same_calls(
      [](Tensor x) {
        auto out = at::empty({0}, at::kLong);
        at::add_out(out, x.to(at::kLong).sum(), x.slice(0, 0, 1).to(at::kChar));
        return out;
      },
      numbers);
  expect_same_calls(
      [](Tensor x) {
        auto values = at::empty({0}), places = at::empty({0}, at::kLong);
        at::topk_out(values, places, x, 2);
        return values + places;
      },
      numbers);
  // One of the caller's, and an argument.
  auto held = at::empty({0});
  expect_same_calls(
      [held](Tensor x) mutable {
        held.resize_(0);
        return at::exp_out(held, -x) * 2;
      },
      numbers);
  const auto fast = compile([](Tensor out, Tensor x) { return at::mul_out(out, x, x) + 1; });
  for (int i = 0; i < 6; ++i) {
    auto out = at::empty({0});
    expect_same(fast(out, numbers(i)), numbers(i) * numbers(i) + 1);
    expect_same(out, numbers(i) * numbers(i));
  }
}

TEST(WatchedState, SeedsSetInside) {
  expect_same_calls(
      [](Tensor x) {
        at::manual_seed(7);
        return x + at::rand({6});
      },
      numbers);
  auto own = at::detail::createCPUGenerator(11);
  const auto reseeded = [own](Tensor x) mutable {
    own.set_current_seed(3);
    return x + at::rand({6}, own);
  };
  expect_same_calls(reseeded, numbers);
  at::manual_seed(1);
  const auto seeds = compile([](Tensor x) {
    at::manual_seed(5);
    return x + 1;
  });
  for (int i = 0; i < 4; ++i) {
    at::rand({3});
    seeds(numbers(i));
    at::manual_seed(5);
    const auto want = at::rand({2});
    at::rand({3});
    seeds(numbers(i));
    EXPECT_TRUE(at::equal(at::rand({2}), want)) << i;
  }
}

/// A call that draws nothing leaves the numbers to the threads that draw them.
TEST(WatchedState, OtherThreadsDrawEachNumberOnce) {
  std::atomic<bool> done{false};
  std::vector<double> drawn;
  std::thread other([&] {
    while (!done) drawn.push_back(at::rand({1}, at::kDouble).item<double>());
  });
  const auto fast = compile([](Tensor x) { return x.exp(); }, {.recompile_limit = 100});
  for (int i = 1; i < 30; ++i) EXPECT_NO_THROW(fast(at::ones({i})));
  done = true;
  other.join();
  const std::set<double> different(drawn.begin(), drawn.end());
  EXPECT_EQ(different.size(), drawn.size());
}

TEST(WatchedState, HooksPutOnArgumentsInside) {
  const auto gradient = [](auto f, int i) {
    auto x = with_gradient(i);
    f(x).sum().backward();
    return x.grad();
  };
  const auto f = [](Tensor x) {
    x.register_hook([](Tensor g) { return g * 3; });
    return x * 2;
  };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) expect_same(gradient(fast, i), gradient(f, i));
  const auto keeps = compile([](Tensor x) {
    x.retain_grad();
    return x * 2;
  });
  for (int i = 0; i < 6; ++i) {
    const auto middle = with_gradient(i) * 1;
    keeps(middle).sum().backward();
    EXPECT_TRUE(middle.grad().defined());
  }
}

/// The gradient of what the argument was computed from comes from there, and not from the program as well.
TEST(WatchedState, AnArgumentComputedFromACapturedTensor) {
  const auto held = at::ones({6}).requires_grad_();
  const auto f = [held](Tensor x) { return held * 3 + x * held; };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto gradient = [&](const auto& function) {
      return torch::autograd::grad({function(held * 2).sum()}, {held})[0];
    };
    expect_same(gradient(fast), gradient(f));
  }
  // And an argument that the outputs do not depend on is none of their history.
  const auto ignores = compile([held](Tensor) { return held * held; });
  auto x = held * 1;
  for (int i = 0; i < 6; ++i) {
    auto y = ignores(x);
    expect_same(torch::autograd::grad({y.sum()}, {held})[0], held.detach() * 2);
    x = y;
  }
}

TEST(WatchedState, OneVariableForTwoParameters) {
  const auto f = [](Tensor& a, Tensor& b) {
    a = a + 1;
    b = b * 2;
  };
  const auto fast = compile(f);
  const auto g = [](Tensor& a, const Tensor& b) {
    a = a + 1;
    return b * 2;
  };
  const auto faster = compile(g);
  for (int i = 0; i < 6; ++i) {
    auto x = numbers(i), y = numbers(i);
    fast(x, x);
    f(y, y);
    expect_same(x, y);
    expect_same(faster(x, x), g(y, y));
    auto other = numbers(3 * i), one = numbers(3 * i), p = numbers(i), q = numbers(i);
    fast(p, other);
    f(q, one);
    expect_same(p, q);
    expect_same(other, one);
  }
}

TEST(WatchedState, ModesLeftBehindAndTensorsOfInferenceMode) {
  const auto fast = compile([](Tensor x) {
    at::GradMode::set_enabled(false);
    return x * 2;
  });
  for (int i = 0; i < 4; ++i) {
    const at::AutoGradMode mode(true);
    fast(numbers(i));
    EXPECT_FALSE(at::GradMode::is_enabled()) << i;
  }
  const auto inside = compile([](Tensor x) {
    const c10::InferenceMode mode;
    return x * 2;
  });
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(inside(numbers(i)).is_inference()) << i;
}

TEST(WatchedState, AMismatchIsNotForgotten) {
  const auto fast = compile([](Tensor x) { return x.storage_offset() ? x * 2 : x * 3; });
  const auto at_offset = at::ones({6}).slice(0, 3), plain = at::ones({3});
  expect_same(fast(plain), plain * 3);
  EXPECT_THROW(fast(at_offset), Mismatch);
  for (int i = 0; i < 4; ++i) expect_same(fast(plain), plain * 3);
  EXPECT_THROW(fast(at_offset), Mismatch);
}

/// Where a tensor begins in its storage is nobody's business, unless an operator is told.
TEST(WatchedState, PlacesInAStorage) {
  const auto own_place = [](Tensor x) { return x.as_strided({2}, {1}, x.storage_offset() + 1) * 2; };
  const auto rolled = [](Tensor x) {
    auto view = x.expand_as(x);
    view.copy_(view.roll(1, 0));
    return view.clone();
  };
  for (const auto& f : {std::function<Tensor(Tensor)>(own_place), std::function<Tensor(Tensor)>(rolled)}) {
    const auto fast = compile(f);
    for (int i = 0; i < 6; ++i) {
      const auto memory = numbers(i), twin = numbers(i);
      expect_same(fast(memory.slice(0, i / 2, i / 2 + 3)), f(twin.slice(0, i / 2, i / 2 + 3)));
      expect_same(memory, twin);
    }
  }
}

TEST(WatchedState, DetachedOutputsStayDetached) {
  const auto held = at::ones({4});
  const auto fast =
      compile([held](Tensor x) { return Tensors{held.detach(), held.detach().slice(0, 1, 3), x}; });
  Tensors kept;
  for (int i = 0; i < 4; ++i) kept = fast(numbers(i));
  auto trained = held;
  trained.requires_grad_();
  EXPECT_FALSE(kept[0].requires_grad());
  EXPECT_FALSE(kept[1].requires_grad());
}

TEST(WatchedState, TensorsMadePastTheDispatcherShareMemory) {
  const auto f = [](Tensor x) {
    const auto w = x * 2;
    return Tensors{w, w.data(), x.data()};
  };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto x = with_gradient(i);
    const auto got = fast(x);
    EXPECT_TRUE(got[0].is_alias_of(got[1]));
    EXPECT_TRUE(got[2].is_alias_of(x));
    EXPECT_FALSE(got[1].requires_grad());
    EXPECT_FALSE(got[2].requires_grad());
  }
  const auto bits = compile([](Tensor x) {
    const auto w = x * 2;
    return Tensors{w, w.view(at::kInt)};
  });
  for (int i = 0; i < 6; ++i) {
    const auto got = bits(with_gradient(i));
    EXPECT_TRUE(got[0].is_alias_of(got[1])) << i;
  }
}

TEST(WatchedState, EqualValuesOfWhichOneIsSeenInPieces) {
  const auto fast = compile([](Tensor x) {
    const auto a = x.view({2, 3}).sum(1, true), b = x.view({2, 3}).sum(1, true);
    return Tensors{a, b.t(), b.view({2})};
  });
  for (int i = 0; i < 6; ++i) {
    const auto got = fast(numbers(i));
    EXPECT_FALSE(got[0].is_alias_of(got[1]));
    EXPECT_TRUE(got[1].is_alias_of(got[2]));
  }
}

TEST(WatchedState, AChangedArgumentThatIsConjugated) {
  const auto f = [](Tensor x) { return x.mul_(x + 1); };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    auto x = at::complex(numbers(i), numbers(2 * i)), y = x.clone();
    EXPECT_TRUE(at::allclose(fast(x.conj()).resolve_conj(), f(y.conj()).resolve_conj()));
    EXPECT_TRUE(at::allclose(x, y));
  }
}

TEST(WatchedState, ACopyOverWhatItReadsRunsAsItIs) {
  const auto f = [](Tensor x) {
    return x.view({2, 3}).slice(1, 1, 3).copy_(x.view({2, 3}).slice(1, 0, 2)).clone();
  };
  expect_same_calls(f, numbers);
}

TEST(WatchedState, GradientsWithQuestionsToTheData) {
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

/// ATen has the number in the tensor's dtype there.
TEST(WatchedState, NumbersThatMeetHalfTensors) {
  for (const auto dtype : {at::kBFloat16, at::kHalf})
    for (const auto& f : {std::function<Tensor(Tensor)>([](Tensor x) { return x.remainder(0.7); }),
                          std::function<Tensor(Tensor)>([](Tensor x) { return x.fmod(0.7); }),
                          std::function<Tensor(Tensor)>([](Tensor x) { return x.pow(2.3); })}) {
      const auto fast = compile(f);
      for (int i = 0; i < 6; ++i) {
        const auto x = (at::arange(67, at::kFloat) * 0.37 + 0.25 * i).to(dtype);
        EXPECT_TRUE(at::equal(fast(x), f(x))) << dtype << " " << fast(x) << f(x);
      }
    }
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

TEST(WatchedState, MemoryWrittenPastTheVersionBeforeTheBackwardPass) {
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

TEST(WatchedState, ATensorThatTheFunctionReachesAndIsGiven) {
  const auto held = numbers(0);
  const auto f = [held](Tensor, Tensor) { return Tensors{held}; };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto other = numbers(i), more = numbers(i + 7);
    const auto got = i == 0 ? fast(held, other) : i == 1 ? fast(other, held) : fast(other, more);
    EXPECT_TRUE(got[0].is_same(held)) << i;
  }
  const auto changed = numbers(0);
  const auto change = [changed](Tensor, Tensor) { return changed.add_(1).sum(); };
  const auto fast_change = compile(change);
  for (int i = 0; i < 6; ++i) {
    const auto other = numbers(i), more = numbers(i + 7);
    const auto sum = i == 0   ? fast_change(changed, other)
                     : i == 1 ? fast_change(other, changed)
                              : fast_change(other, more);
    EXPECT_EQ(sum.item<float>(), 15 + 6 * (i + 1));
    expect_same(other, numbers(i));
  }
}

/// data() is a new tensor each time, of which the dispatcher knows nothing.
TEST(WatchedState, DataOfATensorThatTheFunctionReaches) {
  const auto held = numbers(0);
  expect_same_calls([held](Tensor) { return held.data(); }, numbers);
  expect_same_calls([held](Tensor x) { return x + held.data(); }, numbers);
  expect_same_calls([](Tensor x) { return (x + 1) * x.data(); }, with_gradient);
  expect_same_calls([held](Tensor) { return held.data().view({2, 3}).diagonal(); }, numbers);
  expect_same_calls(
      [](Tensor x) {
        auto data = x.data();
        data.add_(3);
        return data;
      },
      numbers);
}

/// As eager code: 0 times infinity does not count, and what only that output needs gets no gradient.
TEST(WatchedState, OutputsThatNobodyDifferentiates) {
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

TEST(WatchedState, RandomNumbersThatNobodyUsesAreDrawn) {
  const auto block = [](const Tensor& x, const Tensor& c) {
    const auto made = c.masked_fill(at::rand_like(c).gt(0.5), 2);
    x.masked_fill(made.eq(1), 2).bernoulli_(0.5);
    return made;
  };
  const auto c = -at::ones({2}), d = -at::ones({2}) * 3;
  const auto f = [block, c, d](Tensor x) { return at::cat({block(x, c), block(x, d)}); };
  for (const bool verify : {true, false}) {
    const auto fast = compile(f, {.verify = verify});
    for (int i = 0; i < 20; ++i) {
      const auto x = at::ones({2, 2}) * i;
      at::manual_seed(i);
      const auto want = f(x);
      at::manual_seed(i);
      expect_same(fast(x), want);
    }
  }
}

/// The gradient is all rounding, so runs with rounding put in judge it.
TEST(WatchedState, JudgingLeavesTheGeneratorAlone) {
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

/// Compiled code does not round in between: the view's numbers are judged as those of what it is a view of.
TEST(WatchedState, ViewsOfWhatIsComputedInHalfPrecision) {
  const auto scale = (at::arange(6, at::kFloat) * 0.37).to(at::kHalf);
  const auto fast = compile([scale](Tensor x) {
    const auto made = at::silu(x) * scale;
    return Tensors{made.view({2, 3}), made.view({3, 2})};
  });
  for (int i = 0; i < 4; ++i) {
    const auto x = (numbers(i) * 0.71).to(at::kBFloat16);
    EXPECT_TRUE(at::allclose(fast(x)[0].flatten(), at::silu(x.to(at::kFloat)) * scale, 1e-2, 1e-2));
  }
}

TEST(WatchedState, ReferencesToElementsOfWhatIsGiven) {
  const auto f = [](Tensors& all, Tensor& one) {
    all[0] = all[0] + 1;
    one = one * 2;
  };
  const auto g = [](std::pair<Tensor, Tensor>& both, const Tensor& one) {
    both.second = both.second + 1;
    return one * 2;
  };
  const auto fast_f = compile(f);
  const auto fast_g = compile(g);
  const auto grow = compile([](Tensors& all, std::map<std::string, Tensor>& named) {
    all[0] = all[0] + 1;
    named.at("a") = named.at("a") * 2;
  });
  for (int i = 0; i < 5; ++i) {
    Tensors all{numbers(i)}, want_all{numbers(i)};
    fast_f(all, all[0]);
    f(want_all, want_all[0]);
    expect_same(all[0], want_all[0]);
    std::pair both{numbers(i), numbers(i)}, want_both{numbers(i), numbers(i)};
    expect_same(fast_g(both, both.second), g(want_both, want_both.second));
    // Elements stay where they are.
    std::map<std::string, Tensor> named{{"a", numbers(i)}};
    const Tensor &first = all[0], &a = named.at("a");
    grow(all, named);
    EXPECT_EQ(&first, &all[0]);
    EXPECT_EQ(&a, &named.at("a"));
    expect_same(first, want_all[0] + 1);
    expect_same(a, numbers(i) * 2);
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
TEST(WatchedState, BackwardPassesThatDoMoreThanCompute) {
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

TEST(WatchedState, HistoriesThatAGraphDoesNotShow) {
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

/// Of a kind that no watched call had.
TEST(WatchedState, VariancesOfLargeNumbers) {
  for (const auto& f : {std::function<Tensor(Tensor)>([](Tensor x) { return x.std(); }),
                        std::function<Tensor(Tensor)>([](Tensor x) { return x.view({2, 3}).std(1); }),
                        std::function<Tensor(Tensor)>([](Tensor x) { return x.view({2, 3}).var(0).sqrt(); })})
    expect_same_calls(f, [](int i) { return numbers(i) * (i < 3 ? 1.0 : i < 5 ? 1e18 : 1e30); });
}

}  // namespace
}  // namespace graft
