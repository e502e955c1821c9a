// Reads on the host that are no break: comparisons that a program takes for granted, shapes that are given,
// numbers and lists that become tensors.
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/types.h>

#include <cmath>
#include <functional>

#include "compiled_check.h"
#include "graft/compile.h"

namespace graft {
namespace {

using at::Tensor;
using testing_tools::differs;
using torch::indexing::None;
using torch::indexing::Slice;

const CompileOptions whole = {.fullgraph = true};

Tensor numbers(int i) {
  at::manual_seed(i);
  return at::randn({3, 5});
}

/// The function gives the same, compiled as one graph, in six calls on the numbers that `x` makes.
template <class F, class X>
void expect_one_graph(F f, X x) {
  reset();
  const auto fast = compile(f, whole);
  for (int i = 0; i < 6; ++i) {
    const auto want = f(x(i));
    EXPECT_EQ(differs(fast(x(i)), want), "") << "call " << i;
  }
  EXPECT_EQ(counters().graphs, 1);
  EXPECT_EQ(counters().graph_breaks, 0);
}

TEST(KnownAnswers, EqualWithItself) {
  expect_one_graph([](Tensor x) { return at::equal(x, x) ? x + 1 : x - 1; }, numbers);
  const auto whole_numbers = [](int i) { return at::arange(6) + i; };
  expect_one_graph([](Tensor x) { return at::equal(x, x.view({2, 3}).view({6})) ? x + 1 : x - 1; },
                   whole_numbers);
  expect_one_graph([](Tensor x) { return at::equal(x, x.t()) ? x + 1 : x - 1; }, numbers);  // other sizes
  expect_one_graph([](Tensor x) { return at::equal(x, x * 2) ? x + 1 : x - 1; }, numbers);
}

/// The formula asks whether the largest element is NaN. Ties share the gradient, and so do NaNs.
TEST(KnownAnswers, GradientsOfExtremes) {
  const std::vector<std::function<Tensor(Tensor)>> all = {
      [](Tensor x) { return x.exp().max() * 3; }, [](Tensor x) { return x.exp().min().square(); },
      [](Tensor x) { return (x * 2).median(); }, [](Tensor x) { return x / x.abs().max(); }};
  const std::vector<std::pair<int, float>> changes = {{0, 0}, {1, 0}, {2, 9}, {3, std::nanf("")},
                                                      {4, 0}, {5, -9}};
  for (const auto& f : all) {
    reset();
    const auto fast = compile(f, whole);
    for (const auto& [seed, value] : changes) {
      auto x = numbers(seed);
      if (value != 0) x.view({-1}).slice(0, 4, 7).fill_(value);
      auto a = x.clone().set_requires_grad(true), b = x.clone().set_requires_grad(true);
      const auto want = f(a), got = fast(b);
      EXPECT_EQ(differs(got, want), "") << seed;
      want.sum().backward();
      got.sum().backward();
      EXPECT_EQ(differs(b.grad(), a.grad()), "") << seed;
    }
    EXPECT_EQ(counters().graphs, 1);
  }
}

TEST(KnownAnswers, AnotherAnswerIsSeen) {
  const auto f = [](Tensor x) { return at::equal(x, x) ? x + 1 : x.nan_to_num(-7) - 1; };
  const auto fast = compile(f, whole);
  auto x = numbers(0), with_nan = numbers(1);
  with_nan[1][2] = std::nan("");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(differs(fast(x), f(x)), "");
  EXPECT_EQ(differs(fast(with_nan), f(with_nan)), "");
  EXPECT_EQ(differs(fast(x), f(x)), "");
  EXPECT_EQ(differs(fast(with_nan), f(with_nan)), "");
}

TEST(KnownAnswers, AnotherAnswerInTheSecondCall) {
  const auto f = [](Tensor x) { return at::equal(x, x.flip(0)) ? x + 1 : x - 1; };
  const auto fast = compile(f);
  const auto same = at::ones({4}), other = at::arange(4, at::kFloat);
  for (const auto& x : {same, other, same, other, same, other, same, other, same, other, same})
    EXPECT_EQ(differs(fast(x), f(x)), "");
}

/// What changes all the time is a read like others.
TEST(KnownAnswers, AnAnswerThatKeepsChangingIsABreak) {
  const auto f = [](Tensor x) { return at::equal(x, x.flip(0)) ? x + 1 : x - 1; };
  const auto fast = compile(f, whole);
  const auto same = at::ones({4}), other = at::arange(4, at::kFloat);
  const auto call_often = [&] {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(differs(fast(i % 2 ? same : other), f(i % 2 ? same : other)), "");
  };
  EXPECT_THROW(call_often(), GraphBreak);
}

TEST(KnownAnswers, NothingIsChangedBeforeAnotherAnswer) {
  const auto f = [](Tensor x, Tensor& sum) {
    sum.add_(x.sum());
    const auto noise = at::rand({5});
    if (at::equal(x, x)) return x + noise;
    return x.nan_to_num() - noise;
  };
  const auto fast = compile(f);
  auto with_nan = numbers(1);
  with_nan[0][0] = std::nan("");
  for (int i = 0; i < 8; ++i) {
    const auto x = i == 4 ? with_nan : numbers(i);
    auto got_sum = at::zeros({}), want_sum = at::zeros({});
    at::manual_seed(i);
    const auto want = f(x, want_sum);
    const auto next = at::rand({2});
    at::manual_seed(i);
    EXPECT_EQ(differs(fast(x, got_sum), want), "");
    EXPECT_EQ(differs(got_sum, want_sum), "");
    EXPECT_TRUE(at::equal(at::rand({2}), next)) << "as many random numbers were drawn";
  }
}

TEST(KnownAnswers, GradientsWithAnotherAnswer) {
  const auto f = [](Tensor x) { return at::equal(x, x.flip(0)) ? (x * x).sum() : x.exp().sum(); };
  const auto fast = compile(f, whole);
  for (int i = 0; i < 8; ++i) {
    const auto x = (i == 3 || i == 6 ? at::ones({4}) : at::arange(4, at::kFloat)).requires_grad_();
    const auto twin = x.detach().clone().requires_grad_();
    fast(x).backward();
    f(twin).backward();
    EXPECT_EQ(differs(x.grad(), twin.grad()), "") << i;
  }
}

TEST(KnownAnswers, Allclose) {
  expect_one_graph([](Tensor x) { return at::allclose(x, x.clone()) ? x + 1 : x - 1; }, numbers);
  expect_one_graph([](Tensor x) { return at::allclose(x, x + 1, 1e-3, 1e-3, true) ? x + 1 : x - 1; },
                   numbers);
  const auto f = [](Tensor x, Tensor y) { return at::allclose(x, y, 0, 0.5) ? x + y : x - y; };
  const auto fast = compile(f);
  const auto x = at::zeros({4});
  for (const double far : {0.1, 0.2, 0.3, 0.4, 0.6, 0.1, 0.7})
    EXPECT_EQ(differs(fast(x, x + far), f(x, x + far)), "") << far;
}

TEST(KnownAnswers, OneHotWithGivenClasses) {
  const auto classes = [](int i) { return (at::arange(6).view({2, 3}) + i) % 7; };
  expect_one_graph([](Tensor x) { return at::one_hot(x, 7) * 2; }, classes);
  const auto fast = compile([](Tensor x) { return at::one_hot(x, 7); }, whole);
  for (int i = 0; i < 4; ++i) fast(classes(i));
  EXPECT_ANY_THROW(fast(at::full({2, 3}, 7)));
  EXPECT_ANY_THROW(fast(at::full({2, 3}, -1)));
  EXPECT_THROW(compile([](Tensor x) { return at::one_hot(x); }, whole)(classes(0)), GraphBreak);
  EXPECT_TRUE(at::equal(at::one_hot(classes(0)), at::one_hot(classes(0), 6)));  // where nobody watches
}

TEST(KnownAnswers, BincountWithMinlength) {
  const auto values = [](int i) { return (at::arange(9) * 7 + i) % 5; };
  expect_one_graph([](Tensor x) { return at::bincount(x, {}, 8) + 1; }, values);
  expect_one_graph([](Tensor x) { return at::bincount(x, x.to(at::kDouble) * 0.5, 8) + 1; }, values);
  const auto f = [](Tensor x) { return at::bincount(x, {}, 8); };
  const auto fast = compile(f);
  for (int i = 0; i < 8; ++i) {
    const auto x = i == 4 || i == 6 ? at::arange(12) : values(i);
    EXPECT_EQ(differs(fast(x), f(x)), "") << i;
  }
  EXPECT_THROW(compile(f, whole)(at::arange(12)), GraphBreak);
  EXPECT_THROW(compile([](Tensor x) { return at::bincount(x); }, whole)(at::arange(12)), GraphBreak);
}

TEST(KnownAnswers, IndexPut) {
  expect_one_graph(
      [](Tensor x) {
        auto y = x.clone();
        y.index_put_({Slice(0, 2), 1}, 3.5);
        y.index_put_({Slice(), Slice(2, None)}, x.index({Slice(), Slice(0, 3)}));
        y.index_put_({0, 0}, 2);
        return y;
      },
      numbers);
  expect_one_graph(
      [](Tensor x) {
        auto y = x.clone();
        y.index_put_({x > 0}, 0.25);
        y.index_put_({x < -1}, at::full({}, 8.0));
        return y * 2;
      },
      numbers);
  expect_one_graph(
      [](Tensor x) {
        auto y = x * 2;
        y.index_put_({torch::tensor({0, 2}), torch::tensor({1, 4})}, 1.5);
        y.index_put_({"...", 3}, x.select(1, 0));
        const c10::List<std::optional<Tensor>> rows({torch::tensor({1, 1})});
        y.index_put_(rows, torch::tensor({{1.0F}, {2.0F}}).expand({2, 5}), /*accumulate=*/true);
        return y;
      },
      numbers);
  const auto flags = [](int i) { return (at::arange(12).view({3, 4}) + i) % 3 == 0; };
  expect_one_graph(
      [](Tensor mask) {
        auto y = at::zeros({3, 4}, at::kLong);
        y.index_put_({mask}, 5);
        mask.index_put_({0}, true);
        return y + mask;
      },
      flags);
}

TEST(KnownAnswers, GradientsThroughIndexPut) {
  const auto f = [](Tensor x) {
    auto y = x * 3;
    y.index_put_({x > 0}, 0.25);
    y.index_put_({Slice(), 1}, x.select(1, 2).exp());
    return (y * y).sum();
  };
  const auto fast = compile(f, whole);
  for (int i = 0; i < 5; ++i) {
    const auto x = numbers(i).requires_grad_(), twin = numbers(i).requires_grad_();
    fast(x).backward();
    f(twin).backward();
    EXPECT_EQ(differs(x.grad(), twin.grad()), "");
  }
}

/// A tensor without dimensions that the caller holds is data, and not a number.
TEST(KnownAnswers, ACapturedScalarTensorIsAnInput) {
  const auto factor = at::ones({}), outside = at::ones({});
  const auto fast = compile([&](Tensor x) { return x * factor + x.index_put({x > 0}, outside); }, whole);
  for (int i = 0; i < 6; ++i) {
    factor.fill_(i);
    outside.fill_(-i);
    const auto x = numbers(i);
    EXPECT_EQ(differs(fast(x), x * factor + x.index_put({x > 0}, outside)), "") << i;
  }
}

TEST(KnownAnswers, TensorsOfLiterals) {
  expect_one_graph([](Tensor x) { return x * torch::tensor({1.0, 2.0, 3.0, 4.0, 5.0}); }, numbers);
  expect_one_graph([](Tensor x) { return x + torch::tensor({{1}, {2}, {3}}) + torch::tensor(2.5F); },
                   numbers);
  expect_one_graph([](Tensor x) { return x.index_select(1, torch::tensor({4, 0}, at::kLong)); }, numbers);
  expect_one_graph([](Tensor x) { return x.masked_fill(torch::tensor({true, false, true, false, true}), 1); },
                   numbers);
  expect_one_graph([](Tensor x) { return x + at::scalar_tensor(3) + torch::full({5}, 2.0); }, numbers);
}

TEST(KnownAnswers, CtcLoss) {
  for (const auto reduction : {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
    for (const bool zero_infinity : {false, true}) {
      SCOPED_TRACE(std::to_string(reduction) + (zero_infinity ? ", zero_infinity" : ""));
      const auto f = [&](Tensor scores, Tensor targets, Tensor input_lengths, Tensor target_lengths) {
        const auto loss = at::ctc_loss(scores.log_softmax(-1), targets, input_lengths, target_lengths, 0,
                                       reduction, zero_infinity);
        return loss.sum();
      };
      const auto fast = compile(f, whole);
      for (int i = 0; i < 5; ++i) {
        at::manual_seed(i);
        const auto scores = at::randn({12, 3, 6}).requires_grad_();
        const auto twin = scores.detach().clone().requires_grad_();
        const auto targets = at::randint(1, 6, {3, 4}), inputs = at::randint(9, 13, {3}),
                   lengths = at::randint(1, 5, {3});
        const auto got = fast(scores, targets, inputs, lengths), want = f(twin, targets, inputs, lengths);
        EXPECT_EQ(differs(got, want), "") << i;
        got.backward();
        want.backward();
        EXPECT_EQ(differs(scores.grad(), twin.grad()), "") << i;
      }
    }
  }
}

TEST(KnownAnswers, CtcLossWithTargetsInARow) {
  const auto f = [](Tensor scores, Tensor targets, Tensor inputs, Tensor lengths) {
    return at::ctc_loss(scores.log_softmax(-1), targets, inputs, lengths);
  };
  const auto fast = compile(f);
  for (int i = 0; i < 5; ++i) {
    at::manual_seed(i);
    const auto scores = at::randn({12, 2, 6});
    const auto lengths = at::randint(1, 5, {2}), inputs = at::randint(9, 13, {2});
    const auto targets = at::randint(1, 6, {lengths.sum().item<int64_t>()});
    EXPECT_EQ(differs(fast(scores, targets, inputs, lengths), f(scores, targets, inputs, lengths)), "") << i;
  }
  EXPECT_THROW(
      compile(f, whole)(at::randn({12, 2, 6}), at::ones({4}, at::kLong), at::full({2}, 12), at::full({2}, 2)),
      GraphBreak);
}

/// Gradients of the whole table would be mostly zeros.
TEST(KnownAnswers, SparseGradients) {
  torch::manual_seed(0);
  torch::nn::Embedding ours(torch::nn::EmbeddingOptions(50, 4).sparse(true)),
      theirs(torch::nn::EmbeddingOptions(50, 4).sparse(true));
  {
    const at::NoGradGuard no_grad;
    theirs->weight.copy_(ours->weight);
  }
  const auto f = [](torch::nn::Embedding table, const Tensor& ids) { return table(ids).exp().sum(); };
  reset();
  const auto fast = compile([&](const Tensor& ids) { return f(ours, ids); }, whole, {ours.ptr()});
  for (int i = 0; i < 5; ++i) {
    at::manual_seed(i);
    const auto ids = at::randint(0, 50, {2, 3});
    if (i % 2 == 0) {
      ours->zero_grad();
      theirs->zero_grad();
    }
    const auto got = fast(ids), want = f(theirs, ids);
    EXPECT_EQ(differs(got, want), "");
    got.backward();
    want.backward();
    ASSERT_TRUE(ours->weight.grad().is_sparse());
    EXPECT_EQ(differs(ours->weight.grad().to_dense(), theirs->weight.grad().to_dense()), "") << i;
    EXPECT_EQ(ours->weight.grad()._nnz(), theirs->weight.grad()._nnz());
  }
  EXPECT_EQ(counters().graphs, 1);
  // Then it has a row for each word that is not the padding: how many, is data.
  torch::nn::Embedding padded(torch::nn::EmbeddingOptions(50, 4).sparse(true).padding_idx(0));
  const auto breaks = compile([&](const Tensor& ids) { return f(padded, ids); }, whole, {padded.ptr()});
  EXPECT_THROW(breaks(at::arange(6)), GraphBreak);
}

}  // namespace
}  // namespace graft
