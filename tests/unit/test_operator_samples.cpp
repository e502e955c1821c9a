// What PyTorch's own samples of its operators (tests/opinfo) have found, each as a function of its own. Every
// one of these is compiled as one graph.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <functional>
#include <limits>

#include "graft/compile.h"

namespace graft {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

void expect_same(const Tensor& got, const Tensor& want, const std::string& where) {
  ASSERT_EQ(got.defined(), want.defined()) << where;
  if (!want.defined()) return;
  EXPECT_EQ(got.requires_grad(), want.requires_grad()) << where;
  EXPECT_EQ(got.is_conj(), want.is_conj()) << where;
  EXPECT_TRUE(at::allclose(got.detach(), want.detach(), 1e-5, 1e-6)) << where << "\n" << got << "\n" << want;
}

/// Compiled without a break, the function gives what it gives itself, in calls that are watched and others:
/// results, what becomes of its argument, which results share the argument's memory, gradients.
void expect_compiled(const std::function<Tensors(Tensor)>& f, const std::function<Tensor(int)>& argument) {
  reset();
  const auto fast = compile(f);
  for (int i = 0; i < 4; ++i) {
    const auto where = "call " + std::to_string(i);
    auto mine = argument(i), theirs = argument(i);
    const auto got = fast(mine), want = f(theirs);
    ASSERT_EQ(got.size(), want.size());
    expect_same(mine, theirs, where + ", the argument");
    Tensors got_roots, want_roots, tangents;
    for (size_t k = 0; k < want.size(); ++k) {
      expect_same(got[k], want[k], where + ", result " + std::to_string(k));
      EXPECT_EQ(got[k].is_alias_of(mine), want[k].is_alias_of(theirs)) << where;
      if (!want[k].requires_grad()) continue;
      got_roots.push_back(got[k]);
      want_roots.push_back(want[k]);
      tangents.push_back(at::ones_like(want[k]) * static_cast<double>(k + 1));
    }
    if (want_roots.empty() || !theirs.requires_grad()) continue;
    const auto gradient = [&](const Tensors& roots, const Tensor& by) {
      return torch::autograd::grad(roots, {by}, tangents, std::nullopt, false, /*allow_unused=*/true)[0];
    };
    expect_same(gradient(got_roots, mine), gradient(want_roots, theirs), where + ", the gradient");
  }
  EXPECT_EQ(counters().graph_breaks, 0);
  EXPECT_EQ(counters().graphs, 1);
}

Tensor real(int i) { return (at::arange(12, at::kFloat) * 0.3 + 0.1 * i - 1).view({3, 4}); }
Tensor real_with_gradient(int i) { return real(i).requires_grad_(); }
Tensor complex(int i) { return at::complex(real(i), real(i + 2) * 2); }
Tensor complex_with_gradient(int i) { return complex(i).requires_grad_(); }

TEST(OperatorSamples, TheVarianceOfComplexNumbers) {
  const auto f = [](Tensor x) { return Tensors{x.var(1), x.std(), x.mean(0)}; };
  expect_compiled(f, complex);
  expect_compiled(f, complex_with_gradient);
}

TEST(OperatorSamples, ComplexLiterals) {
  const c10::complex<double> number(0.5, -2);
  const auto f = [=](Tensor x) { return Tensors{x * number, at::full_like(x, number), x.pow(number)}; };
  expect_compiled(f, complex);
  expect_compiled([=](Tensor x) { return Tensors{x * number + 1}; }, real_with_gradient);
}

TEST(OperatorSamples, WritesIntoPartsOfComplexNumbers) {
  expect_compiled(
      [](Tensor x) {
        const auto y = x * 2;
        at::real(y).mul_(3);
        at::imag(y).select(1, 1).add_(1);
        return Tensors{y};
      },
      complex);
  expect_compiled(
      [](Tensor x) {
        const auto y = x.view({3, 2, 2}) * 2;
        at::view_as_complex(y).mul_(c10::complex<double>(0, 1));
        return Tensors{y};
      },
      real);
}

TEST(OperatorSamples, PiecesThatAreNoViewsToAutograd) {
  const auto f = [](Tensor x) { return x.unsafe_chunk(2, 1); };
  expect_compiled(f, real);
  expect_compiled(f, real_with_gradient);
  expect_compiled([](Tensor x) { return x.unsafe_split(3, 1); }, real_with_gradient);
}

/// Autograd keeps a copy of what is overwritten: nobody reads it on the host.
TEST(OperatorSamples, WritesThatAutogradKeepsACopyFor) {
  expect_compiled([](Tensor x) { return Tensors{x.clone().cos_()}; }, real_with_gradient);
  expect_compiled([](Tensor x) { return Tensors{(x * 2).clamp_min_(0)}; }, real_with_gradient);
  // This one is read.
  reset();
  const auto reads = compile([](const Tensor& x) {
    const auto copy = x.clone();
    return x * copy.const_data_ptr<float>()[0];
  });
  for (int i = 0; i < 4; ++i) {
    const auto x = real(i);
    EXPECT_TRUE(at::equal(reads(x), x * x[0][0]));
  }
  EXPECT_EQ(counters().graph_breaks, 1);
}

TEST(OperatorSamples, AGradientByNothing) {
  const auto f = [](Tensor x) { return Tensors{at::linalg_vector_norm(x, 0)}; };
  expect_compiled(f, real_with_gradient);
}

TEST(OperatorSamples, MemoryThatIsFilledPartByPart) {
  const auto f = [](Tensor x) {
    const auto y = at::empty({5, 4}, x.options().requires_grad(false));
    y.slice(0, 0, 3).copy_(x);
    y.slice(0, 3, 5).copy_(x.slice(0, 1, 3));
    return Tensors{y};
  };
  expect_compiled(f, real);
}

TEST(OperatorSamples, ElementsOfATensorWithoutDimensions) {
  const auto f = [](Tensor x) {
    const auto one = x.select(0, 1).select(0, 2), places = at::zeros({1}, at::kLong);
    return Tensors{one.gather(0, places) * 2, one.index_select(0, places) + 1};
  };
  expect_compiled(f, real);
  expect_compiled(f, real_with_gradient);
}

/// The gradient asks which elements are as large as the norm, and is a difference of equal numbers.
TEST(OperatorSamples, DividedByANormThatIsOneOfTheElements) {
  const auto f = [](Tensor x) {
    const auto norm = at::linalg_vector_norm(x, -std::numeric_limits<double>::infinity(), {}, true);
    return Tensors{x / at::maximum(norm, at::full_like(norm, 1e-12))};
  };
  for (int i = 0; i < 30; ++i) {
    const auto x = at::scalar_tensor(0.37 * i - 5.1, at::kBFloat16).requires_grad_();
    EXPECT_NO_THROW(compile(f, {.cache = false})(x)) << x;
  }
}

/// It writes results and the running statistics.
TEST(OperatorSamples, BatchNormIntoGivenTensors) {
  const auto f = [](Tensor x) {
    auto mean = x.select(0, 0).clone(), var = x.select(0, 1).clone().abs_();
    auto out = at::zeros_like(x), saved_mean = at::zeros({4}), saved_scale = at::zeros({4});
    at::_native_batch_norm_legit_out(out, saved_mean, saved_scale, x, {}, {}, mean, var, true, 0.1, 1e-5);
    return Tensors{out, saved_mean, saved_scale, mean, var};
  };
  expect_compiled(f, real);
}

}  // namespace
}  // namespace graft
