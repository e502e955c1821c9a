// Helpers for tests that hold compiled code against eager: comparison with a precise message, and text graphs
// that are run twice, over ATen and as compiled.
#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "capture/ivalue.h"
#include "codegen/fusion.h"
#include "compiler/build.h"
#include "ir/clone.h"
#include "ir/parser.h"
#include "targets/reference/interpreter.h"

namespace graft::testing_tools {

/// How far a compiled value may be from eager's: `relative` of the value itself, plus `of_largest` of the
/// largest one, plus `absolute`.
struct Tolerance {
  double relative, of_largest, absolute;
};

inline Tolerance tolerance_for(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return {1e-9, 1e-10, 1e-15};
    case at::kFloat:
      return {2e-5, 1e-6, 1e-7};
    case at::kHalf:
    case at::kBFloat16:
      return {2e-2, 2e-2, 1e-3};
    default:
      return {0, 0, 0};
  }
}

/// Empty if `got` is `want`: dtype, shape, whole numbers and flags exactly, NaN and infinities in the same
/// places.
inline std::string differs(const at::Tensor& got, const at::Tensor& want, Tolerance tolerance) {
  const at::NoGradGuard no_grad;
  std::ostringstream text;
  if (got.defined() != want.defined()) return got.defined() ? "is a tensor, eager has none" : "is missing";
  if (!got.defined()) return "";
  if (got.sizes() != want.sizes() || got.scalar_type() != want.scalar_type()) {
    text << "is " << got.scalar_type() << got.sizes() << ", should be " << want.scalar_type() << want.sizes();
    return text.str();
  }
  if (got.numel() == 0) return "";
  const auto g = got.detach().to(at::kDouble).flatten(), w = want.detach().to(at::kDouble).flatten();
  auto bad = at::zeros_like(g, at::kBool);
  if (want.is_floating_point()) {
    const auto finite = w.isfinite();
    const auto largest = w.where(finite, at::zeros_like(w)).abs().max();
    const auto allowed = w.abs() * tolerance.relative + largest * tolerance.of_largest + tolerance.absolute;
    bad = at::where(finite, ((g - w).abs() <= allowed).logical_not(),
                    g.ne(w).logical_and((g.isnan().logical_and(w.isnan())).logical_not()));
  } else {
    bad = got.detach().flatten().ne(want.detach().flatten());
  }
  if (!bad.any().item<bool>()) return "";
  const auto at = bad.nonzero()[0].item<int64_t>();
  text.precision(10);
  text << bad.sum().item<int64_t>() << " of " << bad.numel() << " values differ, the first at " << at
       << ": got " << g[at].item<double>() << ", want " << w[at].item<double>();
  return text.str();
}

inline std::string differs(const at::Tensor& got, const at::Tensor& want) {
  return differs(got, want, tolerance_for(want.defined() ? want.scalar_type() : at::kFloat));
}

/// Numbers for an input of a graph; whole ones are small and not negative, so that they can be indices.
inline at::Tensor numbers_for(const ir::TensorType& type) {
  const auto dtype = to_torch(type.dtype);
  auto made = at::empty_strided(type.sizes, type.strides, at::dtype(dtype));
  const auto values = at::isFloatingType(dtype) ? at::randn(type.sizes) : at::randint(0, 2, type.sizes);
  return made.copy_(values);
}

/// The graph over ATen and the graph compiled give the same; what the compiled one does is in `schedule`.
struct BothWays {
  std::vector<at::Tensor> reference, compiled;
  int64_t kernels = 0, extern_calls = 0;
};

inline BothWays run_both(const ir::Graph& graph) {
  at::manual_seed(0);
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) inputs.push_back(numbers_for(input->type()));
  BothWays both;
  both.reference = ref::compile(graph, {})->run(inputs);
  const auto fast = build(ir::clone(graph), {}, {.cache = false});
  fast->run(inputs);  // the second run finds its arena used
  both.compiled = fast->run(inputs);
  both.kernels = fast->kernels();
  both.extern_calls = fast->extern_calls();
  return both;
}

/// Fails the test where the two differ.
inline BothWays expect_same_both_ways(const std::string& text) {
  const auto graph = ir::parse(text);
  auto both = run_both(graph);
  for (size_t i = 0; i < both.reference.size(); ++i) {
    const auto what = differs(both.compiled[i], both.reference[i]);
    EXPECT_EQ(what, "") << "result " << i << " of\n" << text;
  }
  return both;
}

/// The compiled program gives what the reference gives over routing tables of every kind. The table [row,
/// slot] is the graph's last input.
inline void expect_same_for_all_choices(const std::string& text) {
  const auto graph = ir::parse(text);
  const auto reference = ref::compile(graph, {});
  const auto compiled = build(ir::clone(graph), {}, {.cache = false});
  at::manual_seed(5);
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) inputs.push_back(numbers_for(input->type()));
  auto& gates = inputs.back();
  for (int choice = 0; choice < 8; ++choice) {
    gates = (at::randint(0, 8, gates.sizes()) < choice).to(at::kBool);
    const auto want = reference->run(inputs), got = compiled->run(inputs);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(differs(got[i], want[i]), "") << "result " << i << ", gates\n" << gates;
  }
}

}  // namespace graft::testing_tools
