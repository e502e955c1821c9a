// What eager code shows and compiled code once did not: which tensors are one, whose memory is whose, what
// runs how often. Every function is called at least six times, with other data each, and held against its
// eager form.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "graft/compile.h"

namespace graft {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

bool same(const Tensor& got, const Tensor& want) {
  return got.sizes() == want.sizes() && got.strides() == want.strides() &&
         got.requires_grad() == want.requires_grad() &&
         at::allclose(got.detach(), want.detach(), 1e-5, 1e-6, true);
}

TEST(WatchedCalls, TheSameTensorTwiceThenTwoViewsOfOneStorage) {  // A4
  const auto f = [](Tensor a, Tensor b) { return a * 2 + b; };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto one = at::randn({4}), two = at::randn({2, 4});
    EXPECT_TRUE(same(fast(one, one), f(one, one)));
    EXPECT_TRUE(same(fast(two[0], two[1]), f(two[0], two[1])));
  }
}

TEST(WatchedCalls, AnArgumentThatIsACapturedTensor) {  // A5
  const auto held = at::ones({3});
  const auto f = [held](Tensor x) { return x + held * 10; };
  const auto fast = compile(f);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same(fast(held), f(held)));
  for (int i = 0; i < 6; ++i) {
    const auto x = at::randn({3});
    EXPECT_TRUE(same(fast(x), f(x)));
  }
  EXPECT_TRUE(same(fast(held), f(held)));
}

struct Counter : torch::nn::Module {
  Counter() { total = register_buffer("total", at::zeros({3})); }
  Tensor forward(Tensor x) {
    total.add_(x);
    return total * x;
  }
  Tensor total;
};

TEST(WatchedCalls, AnArgumentThatSharesMemoryWithAChangedBuffer) {  // A5, A6
  const auto run = [](bool compiled) {
    torch::manual_seed(3);
    const auto module = std::make_shared<Counter>();
    const auto fast = compile(module);
    Tensors seen;
    for (int i = 0; i < 8; ++i) {
      const auto x = i == 0 || i == 5 ? module->total : i == 6 ? module->total.view({3}) : at::randn({3});
      seen.push_back((compiled ? fast(x) : module->forward(x)).clone());
    }
    seen.push_back(module->total.clone());
    return seen;
  };
  const auto got = run(true), want = run(false);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same(got[i], want[i])) << "call " << i;
}

TEST(WatchedCalls, OutputsThatAreViewsOfAnArgument) {  // A7
  const auto f = [](Tensor x) { return Tensors{x.detach(), x.slice(0, 1, 3), x.t(), x}; };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto x = at::randn({5, 8}).slice(1, 1, 8, 2).requires_grad_();
    const auto got = fast(x), want = f(x);
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_TRUE(same(got[k], want[k])) << k;
      EXPECT_EQ(got[k].storage_offset(), want[k].storage_offset());
      EXPECT_TRUE(got[k].is_alias_of(x));
    }
    EXPECT_TRUE(got[3].is_same(x));
  }
}

/// matmul takes another way for a parameter that requires a gradient, also where nobody computes gradients.
TEST(WatchedCalls, AFlagThatAnOperatorLooksAtWithoutGradients) {
  struct Holder : torch::nn::Module {
    Tensor weight = register_buffer("weight", at::arange(4.0f).view({1, 2, 2}));
  };
  const auto module = std::make_shared<Holder>();
  const auto f = [module](Tensor x) { return module->weight.matmul(x); };
  const auto fast = compile(f, {.fullgraph = true}, {module});
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 8; ++i) {
    const auto x = at::arange(8.0f).view({2, 2, 2}) + i;
    EXPECT_TRUE(at::equal(fast(x), f(x))) << i;
    module->weight.requires_grad_(i % 3 == 0);
  }
}

/// A parameter that is a view of what has no gradient, and then one that is not.
TEST(WatchedCalls, ViewsOfParametersThatAreViewsWithoutGradients) {
  auto parameter = at::arange(6.0f).slice(0, 0, 4).requires_grad_();
  const auto f = [&parameter](Tensor x) { return parameter.expand_as(x); };
  const auto fast = compile([&](Tensor x, Tensor p) { return p.expand_as(x); });
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 4; ++i) {
    const auto x = at::ones({2, 4}) * i;
    const auto got = fast(x, parameter), want = f(x);
    EXPECT_TRUE(at::equal(got, want)) << i;
    EXPECT_EQ(got.requires_grad(), want.requires_grad()) << i;
    if (i == 0 || i == 2)
      parameter =
          i == 0 ? at::arange(4.0f).requires_grad_() : at::arange(6.0f).slice(0, 1, 5).requires_grad_();
  }
}

/// Who asks for the argument's gradient after the call finds the view's history as eager code has it.
TEST(WatchedCalls, AViewThatWasMadeBeforeTheArgumentWasWritten) {
  for (const bool before : {true, false}) {
    const auto f = [before](Tensor x) {
      auto view = before ? x.view({2, 3}) : Tensor();
      x.mul_(2);
      return before ? view : x.view({2, 3});
    };
    const auto fast = compile(f);
    for (int i = 0; i < 4; ++i) {
      auto mine = at::arange(6.0f) + i, theirs = mine.clone();
      const auto got = fast(mine), want = f(theirs);
      mine.requires_grad_(), theirs.requires_grad_();
      EXPECT_EQ(got.requires_grad(), want.requires_grad()) << before << i;
      EXPECT_EQ(got.grad_fn() != nullptr, want.grad_fn() != nullptr) << before << i;
    }
  }
}

TEST(WatchedCalls, ViewsOfAChangedArgumentWithAnOffset) {  // A7
  const auto f = [](Tensor x) {
    auto view = x.unsqueeze(1);
    x.tanh_();
    return Tensors{view, x.select(0, 1)};
  };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto memory = at::randn({20}), other = memory.clone();
    const auto got = fast(memory.as_strided({3, 2}, {4, 2}, 5)),
               want = f(other.as_strided({3, 2}, {4, 2}, 5));
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_TRUE(same(got[k], want[k]));
      EXPECT_EQ(got[k].storage_offset(), want[k].storage_offset());
    }
    EXPECT_TRUE(same(memory, other));
  }
}

TEST(WatchedCalls, ConjugateAndNegativeBits) {  // A7, A12
  const auto f = [](Tensor x) { return Tensors{x.conj(), x * 2, x.abs()}; };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    auto x = at::randn({3}, at::kComplexFloat);
    if (i % 2) x = x.conj();
    const auto got = fast(x), want = f(x);
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_EQ(got[k].is_conj(), want[k].is_conj());
      EXPECT_TRUE(at::allclose(got[k].resolve_conj(), want[k].resolve_conj()));
    }
  }
  const auto g = [](Tensor x) { return x + 1; };
  const auto quick = compile(g);
  for (int i = 0; i < 6; ++i) {
    const auto x = at::randn({5});
    const auto given = i >= 3 ? at::_neg_view(x) : x;
    EXPECT_TRUE(at::allclose(quick(given), g(given)));
  }
}

TEST(WatchedCalls, EqualOutputsAreTwoTensors) {  // A13
  const auto fast = compile([](Tensor x) { return Tensors{x + 1, x + 1, x.clone()}; });
  for (int i = 0; i < 6; ++i) {
    const auto x = at::randn({4});
    const auto out = fast(x);
    out[0].zero_();
    EXPECT_TRUE(same(out[1], x + 1));
    out[2].zero_();
    EXPECT_GT(x.abs().sum().item<double>(), 0);
  }
}

TEST(WatchedCalls, ReferenceParametersAreWrittenBack) {  // A14
  const auto f = [](const Tensor& in, Tensor& out, Tensors& more, int& count) {
    out = in * 2;
    more.push_back(in + 1);
    count = 7;
  };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto in = at::randn({3});
    Tensor out;
    Tensors more{in};
    int count = 0;
    fast(in, out, more, count);
    EXPECT_TRUE(same(out, in * 2));
    ASSERT_EQ(more.size(), 2);
    EXPECT_TRUE(more[0].is_same(in));
    EXPECT_TRUE(same(more[1], in + 1));
    EXPECT_EQ(count, 7);
  }
}

TEST(WatchedCalls, TheBodyRunsOncePerCallWhateverBecomesOfTheCapture) {  // A15
  Tensor h = at::zeros({2});
  int runs = 0;
  const auto fast = compile([&](Tensor x) {
    ++runs;
    h = h * 0.5 + x;
    return h;
  });
  auto want = at::zeros({2});
  for (int i = 1; i <= 6; ++i) {
    const auto x = at::randn({2});
    want = want * 0.5 + x;
    EXPECT_TRUE(same(fast(x), want));
    EXPECT_EQ(runs, i);
  }
  int reads = 0;
  const auto reader = compile([&](Tensor x) { return ++reads, x * x.sum().item<float>(); });
  for (int i = 1; i <= 6; ++i) {
    const auto x = at::randn({2});
    EXPECT_TRUE(same(reader(x), x * x.sum()));
    EXPECT_EQ(reads, i);
  }
}

TEST(WatchedCalls, CodeThatLooksAtTensorObjects) {
  const auto held = at::randn({3});
  const auto f = [held](Tensor x) {
    auto y = x.is_leaf() ? x * 2 : x * 3;
    if (x.is_same(held)) y = y + 100;
    if (x.is_alias_of(held)) y = y + 1000;
    return x.grad().defined() ? y * 5 : y;
  };
  const auto fast = compile(f);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(same(fast(held), f(held)));
  for (int i = 0; i < 6; ++i) {
    const auto leaf = at::randn({3}).requires_grad_(), inner = leaf * 2;
    EXPECT_TRUE(same(fast(leaf), f(leaf)));
    EXPECT_TRUE(same(fast(inner), f(inner)));
  }
}

TEST(WatchedCalls, DriftOfALiteralIsAMismatchAtTheSecondCall) {
  int n = 0;
  const auto fast = compile([&](Tensor x) { return x * (1 + 5e-4 * n++); }, {.replay = Replay::off});
  fast(at::randn({4}));
  EXPECT_THROW(fast(at::randn({4})), Mismatch);
}

TEST(WatchedCalls, AMismatchChangesNothing) {
  int n = 0;
  const auto fast = compile([&](Tensor x) { return x.add_(n++).sum(); }, {.replay = Replay::off});
  auto x = at::zeros({3});
  fast(x);
  EXPECT_THROW(fast(x), Mismatch);
  EXPECT_TRUE(same(x, at::zeros({3})));
}

TEST(WatchedCalls, AHookThatChangesAGradient) {  // E
  const auto f = [](Tensor x) { return x * x; };
  const auto fast = compile(f);
  int runs = 0;
  for (int i = 0; i < 6; ++i) {
    const auto x = at::randn({3}).requires_grad_();
    x.register_hook([&runs](const Tensor& g) { return ++runs, g * 10; });
    fast(x).sum().backward();
    EXPECT_TRUE(same(x.grad(), x.detach() * 20));
    EXPECT_EQ(runs, i + 1);
  }
}

TEST(WatchedCalls, AnExplicitGenerator) {  // E
  auto ours = at::globalContext().defaultGenerator(at::kCPU).clone(), theirs = ours.clone();
  const auto f = [](Tensor x, at::Generator g) { return at::empty_like(x).normal_(0, 1, g) + x; };
  const auto fast = compile([&](Tensor x) { return f(x, ours); });
  for (int i = 0; i < 6; ++i) {
    const auto x = at::randn({3, 2}).t();
    EXPECT_TRUE(same(fast(x), f(x, theirs)));
  }
}

TEST(WatchedCalls, RandomNumbersInTheOrderOfMemory) {  // E
  const auto f = [](Tensor x) { return at::dropout(x, 0.5, true); };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto x = at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
    torch::manual_seed(i);
    const auto got = fast(x), after = at::rand({2});
    torch::manual_seed(i);
    EXPECT_TRUE(same(got, f(x)));
    EXPECT_TRUE(same(after, at::rand({2})));
  }
}

TEST(WatchedCalls, WritesIntoAnExpandedArgument) {  // E
  const auto f = [](Tensor x) { return x.zero_().sum(); };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto x = at::randn({3});
    fast(x.unsqueeze(0).expand({2, 3}));
    EXPECT_TRUE(same(x, at::zeros({3})));
  }
}

TEST(WatchedCalls, AGradientByAnOutputThatOthersAreComputedFrom) {  // D
  const auto fast = compile([](Tensor x) {
    auto h = x.sin();
    return Tensors{h, h * h};
  });
  for (int i = 0; i < 6; ++i) {
    const auto x = at::randn({3}).requires_grad_();
    auto out = fast(x);
    const auto plain =
        torch::autograd::grad({out[0].sum() + out[1].sum()}, {x}, {}, /*retain_graph=*/true)[0];
    EXPECT_TRUE(same(plain, (x.cos() + 2 * x.sin() * x.cos()).detach()));
    EXPECT_THROW(torch::autograd::grad({out[1].sum()}, {out[0]}, {}, true, false, /*allow_unused=*/true),
                 Error);
    out[0].retain_grad();
    EXPECT_THROW(out[1].sum().backward({}, true), Error);
  }
}

TEST(WatchedCalls, AnOutputThatIsAViewOfAnotherAndIsChanged) {  // D
  const auto f = [](Tensor x) {
    auto y = x * 2;
    return Tensors{y, y[0]};
  };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto x = at::randn({3, 2}).requires_grad_(), z = x.detach().clone().requires_grad_();
    auto got = fast(x), want = f(z);
    got[0].mul_(3);
    want[0].mul_(3);
    EXPECT_TRUE(same(got[1], want[1]));
    EXPECT_TRUE(
        same(torch::autograd::grad({got[1].sum()}, {x})[0], torch::autograd::grad({want[1].sum()}, {z})[0]));
  }
}

TEST(WatchedCalls, AnInputThatIsOverwrittenBeforeTheBackwardPass) {  // D: eager saved values of its own
  const auto fast = compile([](Tensor x, Tensor w) { return (x * 2).sin() * w; });
  for (int i = 0; i < 6; ++i) {
    auto x = at::randn({3});
    const auto w = at::randn({3}).requires_grad_(), want = (x * 2).sin();
    const auto out = fast(x, w);
    x.zero_();
    try {
      EXPECT_TRUE(same(torch::autograd::grad({out.sum()}, {w})[0], want));
    } catch (const Error&) {
      // An error that says so is as good.
    }
  }
}

TEST(WatchedCalls, DataPointersTakenInsideEndTheCapture) {
  reset();
  const auto f = [](Tensor x) { return x * x.data_ptr<float>()[0] + (x + 1).data_ptr<float>()[1]; };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto x = i < 3 ? at::ones({2}) : at::randn({2});
    EXPECT_TRUE(same(fast(x), f(x)));
  }
  EXPECT_EQ(counters().graphs, 0);
}

/// Its forward() is a template.
TEST(WatchedCalls, Sequential) {
  const torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 2));
  const auto fast = compile(model, {.fullgraph = true});
  for (int i = 0; i < 4; ++i) {
    auto layers = model;
    const auto x = at::randn({3, 4});
    EXPECT_TRUE(at::allclose(fast(x), layers->forward(x), 1e-5, 1e-6));
  }
}

TEST(WatchedCalls, ACapturedTensorInThePlaceOfOneArgumentAndThenOfAnother) {
  const auto held = at::arange(6.f) - 2, twin = held.clone();
  const auto f = [](const Tensor& own) {
    return [own](Tensor x, Tensor) {
      x.relu_();
      return own.amax();
    };
  };
  const auto fast = compile(f(held));
  const auto eager = f(twin);
  for (int i = 0; i < 8; ++i) {
    const auto x = at::arange(6.f) - i, y = x.clone();
    const bool first = i % 2 == 1;
    const auto got = first ? fast(held, x) : fast(x, held), want = first ? eager(twin, y) : eager(y, twin);
    EXPECT_TRUE(at::equal(got, want)) << i;
    EXPECT_TRUE(at::equal(held, twin)) << i;
    EXPECT_TRUE(at::equal(x, y)) << i;
  }
}

}  // namespace
}  // namespace graft
