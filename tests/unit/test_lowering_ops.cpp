// Every operator that the compiler lowers, over dtypes and layouts, against eager: op_cases.h has the table.
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <set>

#include "capture/capture.h"
#include "codegen/lower_tables.h"
#include "compiled_check.h"
#include "compiler/lower.h"
#include "decomp/table.h"
#include "graft/compile.h"
#include "op_cases.h"
#include "op_inputs.h"
#include "passes/pipeline.h"
#include "targets/targets.h"

namespace graft {
namespace {

using at::Tensor;
using op_cases::applies;
using op_cases::Case;
using op_cases::chosen;
using op_cases::dtypes;
using op_cases::half;
using op_cases::How;
using op_cases::Inputs;
using op_cases::inputs_for;
using op_cases::kind_of;
using op_cases::Layout;
using op_cases::layouts;
using op_cases::random_numbers;
using testing_tools::differs;
using testing_tools::Tolerance;
using testing_tools::tolerance_for;
using Tensors = std::vector<Tensor>;
using Cases = std::vector<Case>;

// --- running

CompileOptions options(bool verify) {
  return {.fullgraph = true, .recompile_limit = 1000, .verify = verify, .cache = false};
}

/// Values near cancellation are exact in neither; the largest value says how much that is.
Tolerance tolerance_at(const Layout& layout, at::ScalarType dtype) {
  auto tolerance = tolerance_for(dtype);
  if (layout.how == How::special) tolerance.of_largest = 0;  // infinities and 1e38 would excuse everything
  return tolerance;
}

Tensors run_cases(const Cases& cases, const Tensors& inputs) {
  Tensors outputs;
  const auto in = Inputs::of(inputs);
  outputs.reserve(cases.size());
  for (const auto& c : cases) outputs.push_back(c.run(in));
  return outputs;
}

/// The names in a captured graph.
void collect(const ir::Graph& graph, std::set<std::string>& names) {
  for (const auto& node : graph.nodes()) names.insert(node->op());
}

/// The calls to ATen that stay in a compiled case.
std::set<std::string> calls_of(const Case& c, const Tensors& inputs) {
  const ModuleTree none;
  const Traceable function = [&](const Tensors& in) { return Tensors{c.run(Inputs::of(in))}; };
  auto captured = capture({&function, inputs, &none, false});
  passes::run_passes(passes_for(target_for({})), captured.graph);
  std::set<std::string> names;
  for (const auto& step : codegen::schedule(captured.graph, target_for({}).limits()).steps)
    if (step.external) names.insert(step.external->op());
  return names;
}

/// What is wrong with the cases, compiled together; an exception says nothing about which.
void compare_together(const Cases& cases, const Layout& layout, at::ScalarType dtype, bool calls,
                      std::vector<std::string>& wrong) {
  reset();
  const auto eager = [cases](Tensors inputs) { return run_cases(cases, inputs); };
  const auto fast = compile(eager, options(false));
  const auto where = [&](size_t i) {
    return cases[i].op + " (case " + std::to_string(i) + ") " + layout.name + " " + c10::toString(dtype);
  };
  constexpr int calls_in_all = 4;
  for (int call = 0; call < calls_in_all; ++call) {
    const auto inputs = inputs_for(layout, dtype).list();
    const auto got = fast(inputs);
    auto want = eager(inputs);
    for (size_t i = 0; i < cases.size(); ++i) {
      if (cases[i].right) want[i] = cases[i].right(Inputs::of(inputs));
      auto tolerance = tolerance_at(layout, want[i].scalar_type());
      if (half(dtype) && want[i].is_floating_point()) tolerance = tolerance_at(layout, dtype);
      // One number of many terms, of which little may be left.
      if (want[i].dim() == 0 && want[i].scalar_type() == at::kFloat)
        tolerance.absolute += 0x1p-28 * static_cast<double>(inputs[0].numel());
      if (const auto what = differs(got[i], want[i], tolerance); !what.empty())
        wrong.push_back(where(i) + " " + what);
    }
  }
  if (!calls && counters().extern_calls > 0)
    for (size_t i = 0; i < cases.size(); ++i)
      for (const auto& name : calls_of(cases[i], inputs_for(layout, dtype).list()))
        wrong.push_back(where(i) + " calls " + name);
  if (!calls && counters().kernels == 0) wrong.push_back("no kernel at all for " + where(0));
}

void compare(const Cases& cases, const Layout& layout, at::ScalarType dtype, bool calls,
             std::vector<std::string>& wrong) {
  if (cases.empty()) return;
  try {
    compare_together(cases, layout, dtype, calls, wrong);
  } catch (const std::exception& error) {
    if (cases.size() == 1) {
      const std::string text = error.what();
      wrong.push_back(cases[0].op + " " + layout.name + " " + c10::toString(dtype) + " throws " +
                      text.substr(0, text.find('\n')));
      return;
    }
    for (const auto& c : cases) compare({c}, layout, dtype, calls, wrong);
  }
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += "  " + line + "\n";
  return text;
}

std::string name_of_dtype(const testing::TestParamInfo<at::ScalarType>& info) {
  return c10::toString(info.param);
}

class LoweringOps : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(1); }
  static void check(const Cases& family) {
    std::vector<std::string> wrong;
    for (const auto& layout : layouts()) {
      if (!chosen(layout, GetParam())) continue;
      Cases kernels, calls;
      for (const auto& c : family)
        if (applies(c, layout, GetParam())) (c.calls & kind_of(GetParam()) ? calls : kernels).push_back(c);
      compare(kernels, layout, GetParam(), layout.sizes == std::vector<int64_t>{0, 5}, wrong);
      compare(calls, layout, GetParam(), true, wrong);
    }
    EXPECT_TRUE(wrong.empty()) << wrong.size() << " wrong:\n" << joined(wrong);
  }
};

TEST_P(LoweringOps, Unary) { check(op_cases::unary_cases()); }
TEST_P(LoweringOps, Binary) { check(op_cases::binary_cases()); }
TEST_P(LoweringOps, Choices) { check(op_cases::choice_cases()); }
TEST_P(LoweringOps, Activations) { check(op_cases::activation_cases()); }
TEST_P(LoweringOps, Creation) { check(op_cases::creation_cases()); }
TEST_P(LoweringOps, Movement) { check(op_cases::movement_cases()); }
TEST_P(LoweringOps, Resampling) { check(op_cases::resampling_cases()); }
TEST_P(LoweringOps, Pooling) { check(op_cases::pooling_cases()); }
TEST_P(LoweringOps, Scatters) { check(op_cases::scatter_cases()); }
TEST_P(LoweringOps, Reductions) { check(op_cases::reduction_cases()); }
TEST_P(LoweringOps, Composed) { check(op_cases::composed_cases()); }
TEST_P(LoweringOps, MoreReductions) { check(op_cases::more_reduction_cases()); }
TEST_P(LoweringOps, Whole) { check(op_cases::whole_cases()); }
TEST_P(LoweringOps, Scans) { check(op_cases::scan_cases()); }

INSTANTIATE_TEST_SUITE_P(DTypes, LoweringOps, testing::ValuesIn(dtypes), name_of_dtype);

bool has_gradient(const Case& c) {
  return (c.types & op_cases::floats) && !(c.needs & op_cases::no_gradient);
}

TEST(LoweringTables, EveryOperatorHasACase) {
  std::set<std::string> seen;
  const Layout layout = layouts()[0];
  for (const auto& c : op_cases::all_cases()) {
    const auto dtype = c.types & op_cases::floats ? at::kFloat
                       : c.types & op_cases::ints ? at::kLong
                                                  : at::kBool;
    auto inputs = inputs_for(layout, dtype).list();
    if (has_gradient(c))
      for (size_t i = 0; i < 5; ++i) inputs[i].requires_grad_();
    const ModuleTree none;
    const Traceable function = [&](const Tensors& in) { return Tensors{c.run(Inputs::of(in))}; };
    std::set<std::string> names;
    collect(capture({&function, inputs, &none, has_gradient(c)}).graph, names);
    EXPECT_TRUE(names.contains(c.op))
        << c.op << " is not what its case records: " << testing::PrintToString(names);
    seen.insert(names.begin(), names.end());
  }
  for (const auto& c : op_cases::text_cases()) collect(ir::parse(c.text), seen);
  for (const auto& names : {codegen::lowered_operators(), decomp::decomposed_operators()})
    for (const auto& name : names) EXPECT_TRUE(seen.contains(name)) << name << " has no case in op_cases.h";
}

TEST(LoweringTables, OperatorsThatOnlyGraphsHave) {
  for (const auto& c : op_cases::text_cases()) {
    const auto both = testing_tools::expect_same_both_ways(c.text);
    EXPECT_EQ(both.extern_calls, 0) << c.op;
    EXPECT_GT(both.kernels, 0) << c.op;
  }
}

class LoweringGradients : public testing::TestWithParam<at::ScalarType> {};

/// One function per case: gradients of several would add up.
void compare_gradients(const Case& c, const Layout& layout, at::ScalarType dtype,
                       std::vector<std::string>& wrong) {
  const auto where = c.op + " " + layout.name + " " + c10::toString(dtype) + " ";
  try {
    const auto eager = [&c](Tensors inputs) { return c.run(Inputs::of(inputs)); };
    const auto fast = compile(eager, options(false));
    for (int call = 0; call < 2; ++call) {
      auto inputs = inputs_for(layout, dtype).list();
      Tensors leaves;
      for (size_t i = 0; i < 5; ++i) leaves.push_back(inputs[i] = inputs[i].detach().requires_grad_());
      const auto out = eager(inputs);
      if (!out.requires_grad()) {
        wrong.push_back(where + "has no gradient");
        return;
      }
      const auto tangent = at::randn(out.sizes()).to(out.scalar_type());
      const auto want = torch::autograd::grad({out}, leaves, {tangent}, {}, false, true);
      const auto made = fast(inputs);
      if (const auto what = differs(made, out); !what.empty()) wrong.push_back(where + what);
      const auto got = torch::autograd::grad({made}, leaves, {tangent}, {}, false, true);
      for (size_t i = 0; i < leaves.size(); ++i) {
        auto tolerance = tolerance_for(dtype);
        if (dtype == at::kFloat) tolerance = {1e-4, 1e-5, 1e-6};
        // An input that does not matter has no gradient here and zeros there.
        if (!want[i].defined() && got[i].defined() && got[i].eq(0).all().item<bool>()) continue;
        if (const auto what = differs(got[i], want[i], tolerance); !what.empty())
          wrong.push_back(where + "gradient " + std::to_string(i) + " " + what);
      }
    }
  } catch (const std::exception& error) {
    const std::string text = error.what();
    wrong.push_back(where + "throws " + text.substr(0, text.find('\n')));
  }
}

TEST_P(LoweringGradients, OfEveryCase) {
  reset();
  std::vector<std::string> wrong;
  for (const auto& c : op_cases::all_cases()) {
    at::manual_seed(2);  // a new case does not change the numbers of others
    for (const size_t l : GetParam() == at::kFloat ? std::vector<size_t>{0, 1} : std::vector<size_t>{0})
      if (has_gradient(c) && applies(c, layouts()[l], GetParam()))
        compare_gradients(c, layouts()[l], GetParam(), wrong);
  }
  EXPECT_TRUE(wrong.empty()) << wrong.size() << " wrong:\n" << joined(wrong);
  EXPECT_GT(counters().kernels, 0);
}

INSTANTIATE_TEST_SUITE_P(DTypes, LoweringGradients, testing::Values(at::kFloat, at::kBFloat16),
                         name_of_dtype);

// --- operands that differ

Tensors mixed(const Tensor& a, const Tensors& others) {
  Tensors made;
  for (const auto& b : others) {
    made.insert(made.end(), {a * b, a.eq(b), a.lt(b), at::maximum(a, b), at::where(b.to(at::kBool), a, b)});
    if (b.dim() > 0) made.push_back(at::cat({a, b.expand_as(a)}, 1));
    if (!(a.scalar_type() == at::kBool && b.scalar_type() == at::kBool)) made.push_back(a + b);
    made.push_back(a / b);
  }
  return made;
}

TEST_P(LoweringOps, MixedDtypes) {
  std::vector<std::string> wrong;
  for (const bool scalars : {false, true}) {
    const auto make = [&] {
      Tensors inputs{random_numbers(GetParam(), {3, 5})};
      for (const auto dtype : dtypes)
        inputs.push_back(random_numbers(dtype, scalars ? at::IntArrayRef{} : at::IntArrayRef{5}));
      return inputs;
    };
    const auto eager = [](Tensors in) { return mixed(in[0], {in.begin() + 1, in.end()}); };
    const auto fast = compile(eager, options(false));
    for (int call = 0; call < 3; ++call) {
      const auto inputs = make();
      const auto got = fast(inputs), want = eager(inputs);
      for (size_t i = 0; i < want.size(); ++i) {
        auto tolerance = tolerance_for(want[i].scalar_type());
        if (half(GetParam()) && want[i].is_floating_point()) tolerance = tolerance_for(GetParam());
        if (const auto what = differs(got[i], want[i], tolerance); !what.empty())
          wrong.push_back("output " + std::to_string(i) + (scalars ? " (0-d) " : " ") + what);
      }
    }
  }
  EXPECT_TRUE(wrong.empty()) << joined(wrong);
}

TEST_P(LoweringOps, Scalars) {
  const auto eager = [](Tensor a) {
    Tensors made{a * 2,
                 a * 2.5,
                 a * true,
                 a + 2.5,
                 a.eq(2),
                 a.eq(2.5),
                 a.lt(0.1),
                 a.ge(true),
                 at::where(a.eq(1), a, 2.5),
                 at::where(a.eq(1), 2, a),
                 a / 3,
                 a.masked_fill(a.eq(1), 0),
                 at::pow(2.5, a)};
    if (a.scalar_type() != at::kBool)
      made.insert(made.end(), {a + 3, 3 - a, 1.5 - a, a.clamp(0.5, 2), a.clamp_min(1)});
    return made;
  };
  const auto fast = compile(eager, options(false));
  for (int call = 0; call < 3; ++call) {
    const auto a = random_numbers(GetParam(), {3, 7});
    const auto got = fast(a), want = eager(a);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(differs(got[i], want[i]), "") << "output " << i;
  }
}

TEST_P(LoweringOps, BroadcastOfBothOperands) {
  const auto eager = [](Tensor a, Tensor b, Tensor c) {
    return Tensors{a * b,
                   at::maximum(b, a),
                   a.lt(b),
                   at::where(b.ne(0), a, c),
                   (a * b).sum({0}),
                   at::maximum(a, b).amax({1}),
                   c * a * b};
  };
  const auto fast = compile(eager, options(false));
  const auto shapes = std::vector<std::array<std::vector<int64_t>, 3>>{{{{4, 1}, {1, 17}, {}}},
                                                                       {{{17}, {4, 17}, {1}}},
                                                                       {{{2, 1, 5}, {3, 1}, {5}}},
                                                                       {{{1, 1}, {6, 65}, {6, 1}}}};
  for (const auto& [a, b, c] : shapes)
    for (int call = 0; call < 2; ++call) {
      const auto x = random_numbers(GetParam(), a), y = random_numbers(GetParam(), b),
                 z = random_numbers(GetParam(), c);
      const auto got = fast(x, y, z), want = eager(x, y, z);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(differs(got[i], want[i]), "") << "output " << i << " of " << x.sizes() << y.sizes();
    }
}

}  // namespace
}  // namespace graft
