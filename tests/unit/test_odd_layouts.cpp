// Programs over tensors whose elements share memory, and reductions that meet in one kernel across each
// other: each was refused with an internal error, or computed something else.
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "compiled_check.h"
#include "graft/compile.h"

namespace graft {
namespace {

using at::Tensor;
using testing_tools::differs;
using Tensors = std::vector<Tensor>;

CompileOptions plain() { return {.fullgraph = true, .verify = false, .cache = false}; }

// "A row needs what is there when all rows are done": each row of an expanded tensor has one element, so the
// sum of a column looked like the sum of one number a row.
TEST(OddLayouts, SoftmaxAndSumOfAnExpandedTensor) {
  for (const auto& [rows, columns] : {std::pair(3, 4), {4, 4}, {5, 17}, {64, 64}, {2, 70}})
    for (const int64_t dim : {0, 1})
      for (const int64_t summed : {0, 1}) {
        const auto eager = [=](Tensor x) {
          const auto y = x.softmax(dim);
          return Tensors{y, y.sum(summed), x.exp().amax(summed), x.log_softmax(dim).sum(summed)};
        };
        const auto fast = compile(eager, plain());
        for (const bool by_rows : {true, false})
          for (int call = 0; call < 5; ++call) {
            const auto x = at::randn(by_rows ? at::IntArrayRef{rows, 1} : at::IntArrayRef{1, columns})
                               .expand({rows, columns});
            const auto got = fast(x), want = eager(x);
            for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(differs(got[i], want[i]), "") << x.sizes();
          }
      }
}

// The product in softmax's derivative took the layout of an expanded gradient: all rows in one place.
TEST(OddLayouts, GradientOfSoftmaxWithAnExpandedTangent) {
  const auto eager = [](Tensor x) {
    return Tensors{x.softmax(2).sum(1), x.sum(0).softmax(0), x.log_softmax(1).mean(2)};
  };
  const auto fast = compile(eager, plain());
  for (int call = 0; call < 5; ++call) {
    const auto x = at::randn({1, 3, 70}, at::kDouble).requires_grad_();
    const auto gradient = [&](const Tensors& out) {
      Tensor sum;
      for (const auto& t : out) sum = sum.defined() ? sum + t.square().sum() : t.square().sum();
      return torch::autograd::grad({sum}, {x})[0];
    };
    EXPECT_EQ(differs(gradient(fast(x)), gradient(eager(x))), "");
  }
}

// Lines of memory far apart, a known step apart, and from the last to the first; no extent is a multiple of a
// vector or of a block.
TEST(OddLayouts, TransposedReversedAndStepped) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kChar, at::kBool})
    for (const auto& [rows, columns] : {std::pair(3, 70), {130, 201}, {65, 64}, {1, 129}, {300, 5}}) {
      const auto eager = [](Tensor x, Tensor y) {
        auto stepped = x.clone();
        stepped.slice(1, 1, x.size(1), 3).copy_(y.slice(1, 0, (x.size(1) + 1) / 3));
        return Tensors{x.t().contiguous(),
                       x.flip({1}),
                       x.flip({0, 1}).t().contiguous(),
                       x.slice(1, 0, x.size(1), 2).clone(),
                       at::stack({x, y}, -1),
                       x.unsqueeze(0).expand({3, -1, -1}).permute({2, 0, 1}).contiguous(),
                       stepped};
      };
      const auto fast = compile(eager, plain());
      const auto x = (at::randn({rows, columns}) * 50).to(dtype),
                 y = (at::randn({rows, columns}) * 50).to(dtype);
      const auto got = fast(x, y), want = eager(x, y);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_TRUE(at::equal(got[i], want[i])) << i << " of " << dtype << " " << x.sizes();
    }
}

// Each was copied where the first was not: parts of one tensor that do not overlap are gradients as they are.
TEST(OddLayouts, GradientsThatArePartsOfATensor) {
  const auto fast =
      compile([](Tensor x, Tensor y) { return Tensors{at::cat({x, y}, 1), at::cat({y, x}, 0)}; }, plain());
  for (const size_t which : {0, 1}) {
    const auto x = at::randn({4, 6}).requires_grad_(), y = at::randn({4, 6}).requires_grad_();
    const auto tangent = at::randn(which ? at::IntArrayRef{8, 6} : at::IntArrayRef{4, 12});
    const auto kept = tangent.clone();
    const auto found = torch::autograd::grad({fast(x, y)[which]}, {x, y}, {tangent});
    const auto parts = tangent.chunk(2, which ? 0 : 1);
    EXPECT_TRUE(at::equal(found[0], parts[which])) << which;
    EXPECT_TRUE(at::equal(found[1], parts[1 - which])) << which;
    EXPECT_TRUE(at::equal(tangent, kept));
    if (which == 0) continue;  // with gaps between the rows they are not what autograd keeps
    EXPECT_EQ(found[0].data_ptr(), parts[1].data_ptr());
    EXPECT_EQ(found[1].data_ptr(), parts[0].data_ptr());
  }
}

// Of what overlaps, the second is a copy: it is added to in place.
TEST(OddLayouts, GradientsThatOverlapAreMemoryOfTheirOwn) {
  const auto eager = [](Tensor x, Tensor y) { return x + y.t(); };
  const auto fast = compile(eager, plain());
  const auto x = at::randn({5, 5}).requires_grad_(), y = at::randn({5, 5}).requires_grad_();
  const auto tangent = at::randn({5, 5});
  for (int call = 0; call < 2; ++call) fast(x, y).backward(tangent.clone());
  EXPECT_TRUE(at::equal(x.grad(), 2 * tangent));
  EXPECT_TRUE(at::equal(y.grad(), 2 * tangent.t()));
}

TEST(OddLayouts, NormalisationsOfExpandedTensors) {
  const auto eager = [](Tensor x, Tensor w) {
    const auto rows = w.expand({x.size(0), x.size(1)});
    return Tensors{at::layer_norm(rows, {x.size(1)}) + x, rows.var({0}, false) + rows.std(1).sum(),
                   at::mse_loss(rows, x), rows.mean(1).amax(),
                   at::layer_norm(x.expand({2, -1, -1}), {3}).sum(0)};
  };
  const auto fast = compile(eager, plain());
  for (int call = 0; call < 5; ++call) {
    const auto x = at::randn({9, 3}), w = at::randn({1, 3});
    const auto got = fast(x, w), want = eager(x, w);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(differs(got[i], want[i]), "") << i;
  }
}

// "Columns are stored and nothing else": of bytes, any() gives bytes.
TEST(OddLayouts, AnyOfBytesAcrossAnotherReduction) {
  const auto eager = [](Tensor x) { return Tensors{x.amax(2, true), x.any(0), x.all(0), x.sum(0)}; };
  const auto fast = compile(eager, plain());
  for (const auto dtype : {at::kByte, at::kBool, at::kLong, at::kFloat}) {
    for (int call = 0; call < 5; ++call) {
      const auto x = at::randint(0, 2, {4, 3, 5}).to(dtype);
      const auto got = fast(x), want = eager(x);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(differs(got[i], want[i]), "") << dtype << " " << i;
    }
  }
}

// amax() gives its gradient to the elements that equal the largest. They were none, and the gradient NaN,
// where the machine had rounded a product and a sum once in one loop and twice in the next, or where half
// numbers were compared before they were rounded.
TEST(ExactAgain, TheLargestIsFoundAgainForItsGradient) {
  const std::vector<std::function<Tensors(Tensor, Tensor)>> programs = {
      [](Tensor a, Tensor b) { return Tensors{(a * b + 1.3).amax(-1)}; },
      [](Tensor a, Tensor b) {
        const auto m = a * b;
        return Tensors{(m + 1.3).amax(-1), m.sin()};
      },
      [](Tensor a, Tensor b) { return Tensors{(a * b).softmax(-1).amax(-1)}; },
      [](Tensor a, Tensor b) { return Tensors{at::gelu(a * b).amin(0), (a * b).exp().amax()}; },
      [](Tensor a, Tensor b) {
        const auto m = (a * b).exp();
        return Tensors{(m * 1.7).sum(-1).amax(), m.amax(0), (m / m.sum(-1, true)).amax(-1)};
      },
      [](Tensor a, Tensor b) {
        const auto g = at::gelu(a);
        return Tensors{g, (g + b).unfold(1, 2, 2).amax(-1, true), (g * b).amax()};
      }};
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (size_t p = 0; p < programs.size(); ++p) {
      const auto fast = compile(programs[p], plain());
      for (int call = 0; call < 10; ++call) {
        at::manual_seed(static_cast<uint64_t>(call));
        const auto a = at::randn({6, 40}).to(dtype).requires_grad_();
        const auto b = at::randn({6, 40}).to(dtype).requires_grad_();
        Tensor sum = at::zeros({});
        for (const auto& t : fast(a, b)) sum = sum + t.to(at::kFloat).sum();
        for (const auto& g : torch::autograd::grad({sum}, {a, b}))
          EXPECT_TRUE(g.isfinite().all().item<bool>()) << dtype << ", program " << p << ", call " << call;
      }
    }
}

}  // namespace
}  // namespace graft
