// What the tests of functions with state have in common: the same calls of a function and of its compiled
// form.
#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "graft/compile.h"

namespace graft::watched_state {

using at::Tensor;
using Tensors = std::vector<Tensor>;

inline void expect_same(const Tensor& got, const Tensor& want) {
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

inline const auto numbers = [](int i) { return at::arange(6, at::kFloat) + i; };
inline const auto with_gradient = [](int i) { return numbers(i).requires_grad_(); };

}  // namespace graft::watched_state
