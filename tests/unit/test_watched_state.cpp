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

#include "watched_state.h"

namespace graft {
namespace {

using namespace watched_state;

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
  const auto f = [](Tensor x) { return x.storage_offset() ? x * 2 : x * 3; };
  const auto fast = compile(f, {.replay = Replay::off});
  const auto at_offset = at::ones({6}).slice(0, 3), plain = at::ones({3});
  expect_same(fast(plain), plain * 3);
  EXPECT_THROW(fast(at_offset), Mismatch);
  for (int i = 0; i < 4; ++i) expect_same(fast(plain), plain * 3);
  EXPECT_THROW(fast(at_offset), Mismatch);
  const at::NoGradGuard no_grad;
  const auto replayed = compile(f, {.replay = Replay::automatic});
  for (int i = 0; i < 20; ++i) {
    expect_same(replayed(plain), plain * 3);
    expect_same(replayed(at_offset), at_offset * 2);
  }
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
  // Of views with gaps torch does not know that they overlap.
  const auto index = at::tensor({2, 0, 2});
  const auto added = [&](Tensor x) {
    const auto every_other = [&] { return x.slice(0, 0, 6, 2); };
    every_other().index_add_(0, index, every_other());
    return x.clone();
  };
  expect_same_calls(added, numbers);
}

/// What the code asks for by its name is rounded, also where a kernel goes on with it.
TEST(WatchedState, CastsRound) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto f = [dtype](Tensor x) { return x.sin().to(dtype).to(at::kFloat) * 3; };
    const auto fast = compile(f);
    for (int i = 0; i < 4; ++i) {
      const auto x = at::arange(67, at::kFloat) * 0.37 + i;
      EXPECT_LT((fast(x) - f(x)).abs().gt(1e-6).sum().item<int64_t>(), 4) << dtype;
    }
  }
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

TEST(WatchedState, ATensorThatTheFunctionReachesAndIsGiven) {
  const auto held = numbers(0);
  const auto f = [held](Tensor, Tensor) { return Tensors{held}; };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto other = numbers(i), more = numbers(i + 7);
    const auto got = i == 0 ? fast(held, other) : i == 1 ? fast(other, held) : fast(other, more);
    EXPECT_TRUE(got[0].is_same(held)) << i;
  }
  const auto reads = [held](Tensor, Tensor) { return held.amax() * 2; };
  const auto fast_reads = compile(reads);
  for (int i = 0; i < 6; ++i) {
    const auto other = numbers(i), more = numbers(i + 7);
    const auto got = i == 0   ? fast_reads(other, held)
                     : i == 1 ? fast_reads(held, other)
                              : fast_reads(other, more);
    EXPECT_EQ(got.item<float>(), 10);
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

TEST(WatchedState, WritesThroughConjugatedViews) {
  const auto complex = [](int i) { return at::complex(numbers(i), numbers(i + 2)).view({2, 3}); };
  for (const auto& f :
       {std::function<void(Tensor)>([](Tensor x) { x.conj().select(1, 2).zero_(); }),
        std::function<void(Tensor)>([](Tensor x) { x.conj().add_(x.sum().detach()); }),
        std::function<void(Tensor)>([](Tensor x) { x.conj().t().select(0, 1).mul_(2); }),
        std::function<void(Tensor)>([](Tensor x) { x.select(1, 0).conj().copy_(x.select(1, 1)); })}) {
    const auto fast = compile(f);
    for (int i = 0; i < 5; ++i) {
      const auto got = complex(i), want = complex(i);
      fast(got);
      f(want);
      EXPECT_TRUE(at::equal(got, want)) << got << want;
    }
  }
}

/// Masked rows: the largest of nothing but -infinity is that.
TEST(WatchedState, RowsOfInfinities) {
  for (const auto& f : {std::function<Tensor(Tensor)>([](Tensor x) { return x.view({2, 3}).amax(1); }),
                        std::function<Tensor(Tensor)>([](Tensor x) { return -((-x).view({2, 3}).amin(1)); }),
                        std::function<Tensor(Tensor)>([](Tensor x) { return x.view({2, 3}).softmax(1); }),
                        std::function<Tensor(Tensor)>([](Tensor x) { return x.view({2, 3}).logsumexp(1); })})
    expect_same_calls(f, [](int i) {
      return numbers(i).masked_fill(numbers(0).lt(i < 3 ? 0 : 3), -std::numeric_limits<float>::infinity());
    });
}

/// Of a kind that no watched call had.
TEST(WatchedState, VariancesOfLargeNumbers) {
  for (const auto& f : {std::function<Tensor(Tensor)>([](Tensor x) { return x.std(); }),
                        std::function<Tensor(Tensor)>([](Tensor x) { return x.view({2, 3}).std(1); }),
                        std::function<Tensor(Tensor)>([](Tensor x) { return x.view({2, 3}).var(0).sqrt(); })})
    expect_same_calls(f, [](int i) { return numbers(i) * (i < 3 ? 1.0 : i < 5 ? 1e18 : 1e30); });
}

TEST(WatchedState, FractionsFilledIntoFlagsAreTrue) {
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
TEST(WatchedState, SoftmaxOfRepeatedNumbers) {
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

/// What an operator refuses by its data it refuses as in eager code: with ATen's error, which code may catch.
TEST(WatchedState, DataThatAnOperatorRefuses) {
  const auto places = [](int i) {
    return at::scalar_tensor(i % 4 == 3 ? 9 : i % 4, at::kLong).view({1});  // of six rows
  };
  const std::function<Tensor(Tensor, Tensor)> lookups[] = {
      [](Tensor x, Tensor at) { return at::embedding(x.view({6, 1}) * 2, at); },
      [](Tensor x, Tensor at) { return x.sin().gather(0, at); },
      [](Tensor x, Tensor at) { return x.exp().index({at}) + 1; },
      [](Tensor x, Tensor at) { return x.scatter(0, at, 5).cos(); }};
  for (const auto& f : lookups)
    for (const auto replay : {Replay::automatic, Replay::every, Replay::off}) {
      const auto fast = compile(f, {.replay = replay});
      for (int i = 0; i < 12; ++i)
        if (i % 4 == 3)
          EXPECT_THROW(fast(numbers(i), places(i)), c10::Error) << i;
        else
          expect_same(fast(numbers(i), places(i)), f(numbers(i), places(i)));
    }
  int caught = 0;
  const auto f = [&caught](Tensor x, Tensor at) {
    const auto rows = x.view({6, 1}) * 2;
    try {
      return at::embedding(rows, at).sum() + 1;
    } catch (const c10::Error&) {
      ++caught;
      return rows.sum();
    }
  };
  const auto fast = compile(f);
  for (int i = 0; i < 16; ++i) {
    expect_same(fast(numbers(i), places(i)), f(numbers(i), places(i)));
    EXPECT_EQ(caught, (i + 1) / 4 * 2);
  }
}

TEST(WatchedState, ArgumentsWithoutStrides) {
  const auto f = [](Tensor x, Tensor y) { return x.matmul(y) + 1; };
  const auto fast = compile(f);
  const auto y = numbers(2).view({3, 2});
  for (int i = 0; i < 6; ++i) {
    const auto dense = numbers(i).view({2, 3}).sub(3).relu();
    for (const auto& x : {dense.to_sparse_csr(), dense.to_sparse(), dense}) expect_same(fast(x, y), f(x, y));
  }
}

}  // namespace
}  // namespace graft
