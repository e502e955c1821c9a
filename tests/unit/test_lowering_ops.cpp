// Every operator that the compiler lowers, over dtypes and layouts, against eager: op_cases.h has the table.
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <limits>
#include <set>

#include "capture/capture.h"
#include "codegen/lower_tables.h"
#include "compiled_check.h"
#include "compiler/lower.h"
#include "decomp/table.h"
#include "graft/compile.h"
#include "op_cases.h"
#include "passes/pipeline.h"
#include "targets/targets.h"

namespace graft {
namespace {

using at::Tensor;
using op_cases::Case;
using op_cases::Inputs;
using testing_tools::differs;
using testing_tools::Tolerance;
using testing_tools::tolerance_for;
using Tensors = std::vector<Tensor>;
using Cases = std::vector<Case>;

constexpr at::ScalarType dtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong,
                                     at::kInt,   at::kShort,  at::kChar,     at::kByte, at::kBool};

op_cases::Types kind_of(at::ScalarType dtype) {
  return at::isFloatingType(dtype) ? op_cases::floats : dtype == at::kBool ? op_cases::flags : op_cases::ints;
}

bool half(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

// --- inputs

struct Layout {
  enum class How : uint8_t { contiguous, transposed, stepped, expanded, special } how;
  std::vector<int64_t> sizes;
  const char* name;
  enum class Run : uint8_t {
    always,
    often,
    seldom
  } run = Run::often;  ///< for every dtype, most, few: they cost time
};
using Run = Layout::Run;
using How = Layout::How;

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {How::contiguous, {4, 17}, "contiguous", Run::always},
      {How::transposed, {5, 6}, "transposed", Run::always},
      {How::stepped, {3, 9}, "stepped"},
      {How::expanded, {4, 17}, "expanded"},
      {How::contiguous, {0, 5}, "empty"},
      {How::contiguous, {}, "0-d"},
      {How::contiguous, {1}, "one"},
      {How::contiguous, {3, 2}, "three"},
      {How::contiguous, {63}, "sixty-three"},
      {How::transposed, {2, 65, 3}, "transposed 3-d"},
      {How::special, {}, "special values", Run::always},
      {How::contiguous, {130, 517}, "large", Run::seldom},
      {How::transposed, {130, 517}, "large transposed", Run::seldom},
  };
  return all;
}

/// A tensor of the layout whose memory `fill` has filled.
Tensor laid_out(const Layout& layout, const std::function<Tensor(at::IntArrayRef)>& fill) {
  auto sizes = layout.sizes;
  switch (layout.how) {
    case How::transposed: {
      std::reverse(sizes.begin(), sizes.end());
      std::vector<int64_t> order(sizes.size());
      for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(order.size() - 1 - d);
      return fill(sizes).permute(order);
    }
    case How::stepped: {
      for (auto& s : sizes) s *= 2;
      auto made = fill(sizes);
      for (size_t d = 0; d < sizes.size(); ++d) made = made.slice(static_cast<int64_t>(d), 1, sizes[d], 2);
      return made;
    }
    case How::expanded:
      sizes[0] = 1;
      return fill(sizes).expand(layout.sizes);
    default:
      return fill(sizes);
  }
}

Tensor random_numbers(at::ScalarType dtype, at::IntArrayRef sizes) {
  if (at::isFloatingType(dtype)) return at::randn(sizes).mul(2).to(dtype);
  if (dtype == at::kBool) return at::randint(0, 2, sizes).to(dtype);
  return (dtype == at::kByte ? at::randint(0, 12, sizes) : at::randint(-5, 6, sizes)).to(dtype);
}

template <class T>
Tensor integer_edges(at::ScalarType dtype) {
  using Limits = std::numeric_limits<T>;
  const std::vector<int64_t> edges = {
      Limits::min(),     Limits::min() + 1,    0, 1, 2, 3, 7, 100, Limits::max() - 1, Limits::max(),
      Limits::max() / 2, Limits::max() / 2 + 1};
  auto made = at::tensor(edges, at::kLong).to(dtype);
  return std::is_signed_v<T> ? at::cat({made, at::tensor({-1, -2, -3, -100}, at::kLong).to(dtype)}) : made;
}

Tensor edges(at::ScalarType dtype) {
  const double inf = INFINITY;
  switch (dtype) {
    case at::kLong:
      return integer_edges<int64_t>(dtype);
    case at::kInt:
      return integer_edges<int32_t>(dtype);
    case at::kShort:
      return integer_edges<int16_t>(dtype);
    case at::kChar:
      return integer_edges<int8_t>(dtype);
    case at::kByte:
      return integer_edges<uint8_t>(dtype);
    case at::kBool:
      return at::tensor({0, 1}).to(dtype);
    default:
      break;
  }
  std::vector<double> values = {NAN, inf,  -inf, 0.0,  -0.0,  1,   -1, 0.5, -0.5, 1.5,
                                2.5, -2.5, 3,    1e-3, -1e-3, 0.1, 10, -10, 20.5, -20.5};
  switch (dtype) {
    case at::kFloat:
      values.insert(values.end(), {1e-40, -1e-40, 3.4e38, -3.4e38, 88.5, 89, -103.5, 1e-30, 1e10, 16777217});
      break;
    case at::kDouble:
      values.insert(values.end(), {1e-310, 1.7e308, -1.7e308, 709.5, 710, -745, 1e15});
      break;
    case at::kHalf:
      values.insert(values.end(), {6e-8, 65504, -65504, 11, 2049});
      break;
    default:
      values.insert(values.end(), {1e-40, 3.3e38, 88.5, 257});
      break;
  }
  return at::tensor(values, at::kDouble).to(dtype);
}

/// Every edge with every other.
Inputs special_inputs(at::ScalarType dtype) {
  const auto values = edges(dtype);
  const int64_t n = values.numel();
  Inputs made;
  made.x = values.repeat_interleave(n);
  made.y = values.repeat({n});
  made.z = made.x.roll(7);
  made.p = made.u = made.x.clone();
  made.u = made.p.clone();
  made.mask = at::arange(n * n).remainder(3).eq(0);
  made.at = at::arange(n * n).flip(0);
  made.rows = at::tensor({1, 0, 1, 0, 0}, at::kLong);
  made.rows32 = made.rows.to(at::kInt);
  made.columns = made.rows;
  return made;
}

Inputs inputs_for(const Layout& layout, at::ScalarType dtype) {
  if (layout.how == How::special) return special_inputs(dtype);
  Inputs made;
  const auto numbers = [&](at::IntArrayRef sizes) { return random_numbers(dtype, sizes); };
  made.x = laid_out(layout, numbers), made.y = laid_out(layout, numbers), made.z = laid_out(layout, numbers);
  const bool real = at::isFloatingType(dtype);
  made.p = laid_out(layout, [&](at::IntArrayRef s) {
    return (real ? at::rand(s).mul(3).add(0.1) : at::randint(1, 4, s)).to(dtype);
  });
  made.u = laid_out(layout, [&](at::IntArrayRef s) {
    return (real                 ? at::rand(s).mul(1.8).sub(0.9)
            : dtype == at::kByte ? at::randint(0, 2, s)
                                 : at::randint(-1, 2, s))
        .to(dtype);
  });
  made.mask = laid_out(layout, [&](at::IntArrayRef s) { return at::randint(0, 2, s).to(at::kBool); });
  const int64_t rows = layout.sizes.empty() ? 1 : std::max<int64_t>(layout.sizes[0], 1);
  made.at = laid_out(layout, [&](at::IntArrayRef s) { return at::randint(0, rows, s, at::kLong); });
  made.rows = at::randint(0, rows, {5}, at::kLong);
  made.rows32 = at::randint(0, rows, {5}, at::kInt);
  made.columns = at::randint(0, layout.sizes.empty() ? 1 : layout.sizes.back(), {5}, at::kLong);
  return made;
}

/// Every way of storing a number gets every layout; those that differ in width only get a few.
bool chosen(const Layout& layout, at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return true;
    case at::kBFloat16:
    case at::kLong:
      return layout.run != Run::seldom;
    default:
      return layout.run == Run::always;
  }
}

bool applies(const Case& c, const Layout& layout, at::ScalarType dtype) {
  const size_t rank = layout.how == How::special ? 1 : layout.sizes.size();
  const bool empty = std::find(layout.sizes.begin(), layout.sizes.end(), 0) != layout.sizes.end();
  if (!(c.types & kind_of(dtype))) return false;
  if ((c.needs & op_cases::rank1) && rank < 1) return false;
  if ((c.needs & op_cases::rank2) && rank != 2) return false;
  if ((c.needs & op_cases::elements) && empty) return false;
  if ((c.needs & op_cases::plain) && layout.how == How::special) return false;
  if ((c.needs & op_cases::no_half) && half(dtype)) return false;
  return true;
}

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
TEST_P(LoweringOps, Scatters) { check(op_cases::scatter_cases()); }
TEST_P(LoweringOps, Reductions) { check(op_cases::reduction_cases()); }
TEST_P(LoweringOps, Composed) { check(op_cases::composed_cases()); }

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
  at::manual_seed(2);
  reset();
  std::vector<std::string> wrong;
  for (const auto& c : op_cases::all_cases())
    for (const size_t l : GetParam() == at::kFloat ? std::vector<size_t>{0, 1} : std::vector<size_t>{0})
      if (has_gradient(c) && applies(c, layouts()[l], GetParam()))
        compare_gradients(c, layouts()[l], GetParam(), wrong);
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
