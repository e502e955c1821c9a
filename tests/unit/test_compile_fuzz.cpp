// Random programs over tensors, compiled and eager: the same results, twice, and the first results untouched
// by the second call. A program that fails is made smaller and printed as C++.
//
// Two sorts. Exact programs work on small whole numbers (in any dtype), where every order of operations gives
// the same: results must be equal, so comparisons, arg-reductions and casts may take part. Smooth ones use
// functions of analysis on float64 and compare up to rounding; half of them take gradients too.
//
// GRAFT_FUZZ_COUNT programs of each sort (default 60), from GRAFT_FUZZ_SEED on (default 1). Program n of seed
// s is program 1 of seed s + n - 1. GRAFT_FUZZ_PRINT=1 prints each program before it runs, for one that
// crashes.
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <cstdlib>
#include <iostream>

#include "compiled_check.h"
#include "graft/compile.h"
#include "random_programs.h"

namespace graft {
namespace {

using testing_tools::differs;
using namespace random_programs;

// --- the grammar

enum Sort : unsigned { exact = 1, smooth = 2, both = 3 };

struct Rule {
  const char* text;  ///< C++: $0, $1 are tensors, #0, #1 numbers
  int arity;
  Sort sort;
  std::function<Tensor(const Tensors&, const Ints&)> run;
  std::function<Ints(Random&, const Tensors&)> pick =
      {};  ///< numbers for these tensors; eager decides whether they are valid
};

Ints one_dim_and_size(Random& r, const Tensors& t) {
  const auto d = any_dim(r, t[0]);
  return {d, t[0].dim() ? std::max<int64_t>(t[0].size(d), 1) : 1};
}
/// A change through a view of a copy.
template <class F>
Tensor changed(const Tensor& t, F change) {
  auto copy = t.clone();
  change(copy);
  return copy;
}

#define RUN(expression)                           \
  [](const Tensors& t, const Ints& n) -> Tensor { \
    (void)n;                                      \
    return expression;                            \
  }

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      // pointwise
      {"-$0", 1, both, RUN(-t[0])},
      {"$0.abs()", 1, both, RUN(t[0].abs())},
      {"$0.relu()", 1, both, RUN(t[0].relu())},
      {"$0 * #0", 1, both, RUN(t[0] * n[0]), one_to_three},
      {"$0 + #0", 1, both, RUN(t[0] + n[0]), one_to_three},
      {"#0 - $0", 1, both, RUN(n[0] - t[0]), one_to_three},
      {"$0 + $1", 2, both, RUN(t[0] + t[1])},
      {"$0 - $1", 2, both, RUN(t[0] - t[1])},
      {"$0 * $1", 2, both, RUN(t[0] * t[1])},
      {"at::maximum($0, $1)", 2, both, RUN(at::maximum(t[0], t[1]))},
      {"at::minimum($0, $1)", 2, both, RUN(at::minimum(t[0], t[1]))},
      {"$0.eq($1)", 2, exact, RUN(t[0].eq(t[1]))},
      {"$0.gt($1)", 2, exact, RUN(t[0].gt(t[1]))},
      {"$0.le(#0)", 1, exact, RUN(t[0].le(n[0])), one_to_three},
      {"at::where($0.gt(0), $1, $2)", 3, exact, RUN(at::where(t[0].gt(0), t[1], t[2]))},
      {"$0.masked_fill($1.eq(1), #0)", 2, exact, RUN(t[0].masked_fill(t[1].eq(1), n[0])), one_to_three},
      {"$0.clamp(-2, #0)", 1, exact, RUN(t[0].clamp(-2, n[0])), one_to_three},
      {"$0.logical_and($1)", 2, exact, RUN(t[0].logical_and(t[1]))},
      {"$0.to(dtype_of(#0))", 1, exact, RUN(t[0].to(dtype_of(n[0]))), a_dtype},
      {"$0.tanh()", 1, smooth, RUN(t[0].tanh())},
      {"$0.sigmoid()", 1, smooth, RUN(t[0].sigmoid())},
      {"$0.sin()", 1, smooth, RUN(t[0].sin())},
      {"at::gelu($0)", 1, smooth, RUN(at::gelu(t[0]))},
      {"at::silu($0)", 1, smooth, RUN(at::silu(t[0]))},
      {"$0.mul(0.3).exp()", 1, smooth, RUN(t[0].mul(0.3).exp())},
      {"$0 / ($1.abs() + 1)", 2, smooth, RUN(t[0] / (t[1].abs() + 1))},
      {"$0.square().add(1).rsqrt()", 1, smooth, RUN(t[0].square().add(1).rsqrt())},
      // views
      {"$0.transpose(#0, #1)", 1, both, RUN(t[0].transpose(n[0], n[1])), two_dims},
      {"$0.slice(#0, #1, #2, #3)", 1, both, RUN(t[0].slice(n[0], n[1], n[2], n[3])), slice_of},
      {"$0.select(#0, #1)", 1, both, RUN(t[0].select(n[0], n[1])), a_row},
      {"$0.unsqueeze(#0)", 1, both, RUN(t[0].unsqueeze(n[0])), one_dim},
      {"$0.squeeze()", 1, both, RUN(t[0].squeeze())},
      {"$0.flatten()", 1, both, RUN(t[0].flatten())},
      {"$0.reshape({-1, #0})", 1, both, RUN(t[0].reshape({-1, n[0]})), one_to_three},
      {"$0.unsqueeze(#0).expand_as($1)", 2, both, RUN(t[0].unsqueeze(n[0]).expand_as(t[1])), one_dim},
      {"$0.expand({#0, -1, -1})", 1, both, RUN(t[0].expand({n[0], -1, -1})), one_to_three},
      {"$0.diagonal()", 1, both, RUN(t[0].diagonal())},
      {"$0.flip({#0})", 1, both, RUN(t[0].flip({n[0]})), one_dim},
      {"$0.chunk(2, #0).back()", 1, both, RUN(t[0].chunk(2, n[0]).back()), one_dim},
      {"$0.unfold(#0, 2, #1)", 1, both, RUN(t[0].unfold(n[0], 2, n[1])),
       [](Random& r, const Tensors& t) { return Ints{any_dim(r, t[0]), r.number(1, 2)}; }},
      {"$0.clone()", 1, both, RUN(t[0].clone())},
      {"$0.contiguous()", 1, both, RUN(t[0].contiguous())},
      // reductions
      {"$0.sum(#0, #1)", 1, both, RUN(t[0].sum(n[0], n[1] != 0)), dim_and_flag},
      {"$0.unsqueeze(#0).sum(#0, #1)", 1, both, RUN(t[0].unsqueeze(n[0]).sum(n[0], n[1] != 0)), dim_and_flag},
      {"$0.sum()", 1, both, RUN(t[0].sum())},
      {"$0.amax(#0, #1)", 1, both, RUN(t[0].amax(n[0], n[1] != 0)), dim_and_flag},
      {"$0.amin(#0, #1)", 1, exact, RUN(t[0].amin(n[0], n[1] != 0)), dim_and_flag},
      {"$0.any(#0, #1)", 1, exact, RUN(t[0].any(n[0], n[1] != 0)), dim_and_flag},
      {"$0.argmax(#0, #1)", 1, exact, RUN(t[0].argmax(n[0], n[1] != 0)), dim_and_flag},
      {"$0.argmin()", 1, exact, RUN(t[0].argmin())},
      {"std::get<1>($0.max(#0, #1))", 1, exact, RUN(std::get<1>(t[0].max(n[0], n[1] != 0))), dim_and_flag},
      {"$0.mean(#0, #1)", 1, smooth, RUN(t[0].mean(n[0], n[1] != 0)), dim_and_flag},
      {"$0.softmax(#0)", 1, smooth, RUN(t[0].softmax(n[0])), one_dim},
      {"$0.log_softmax(#0)", 1, smooth, RUN(t[0].log_softmax(n[0])), one_dim},
      {"$0.var({#0}, false, #1)", 1, smooth, RUN(t[0].var(at::IntArrayRef{n[0]}, false, n[1] != 0)),
       dim_and_flag},
      {"at::layer_norm($0, {$0.size(-1)})", 1, smooth, RUN(at::layer_norm(t[0], {t[0].size(-1)}))},
      // movement
      {"at::cat({$0, $1}, #0)", 2, both, RUN(at::cat({t[0], t[1]}, n[0])), one_dim},
      {"at::cat({$0, $0.slice(#0, 0, 1)}, #0)", 1, both, RUN(at::cat({t[0], t[0].slice(n[0], 0, 1)}, n[0])),
       one_dim},
      {"at::stack({$0, $0 + 1}, #0)", 1, both, RUN(at::stack({t[0], t[0] + 1}, n[0])), one_dim},
      {"$0.repeat({#0, 1, 2})", 1, both, RUN(t[0].repeat({n[0], 1, 2})), one_to_three},
      {"at::constant_pad_nd($0, {#0, 1}, 2)", 1, both, RUN(at::constant_pad_nd(t[0], {n[0], 1}, 2)),
       one_to_three},
      {"at::constant_pad_nd($0, {-1, #0})", 1, both, RUN(at::constant_pad_nd(t[0], {-1, n[0]})),
       one_to_three},
      {"$0.index_select(#0, v0)", 1, both, RUN(t[0].index_select(n[0], t[1])), one_dim},
      {"$0.index({v0})", 1, both, RUN(t[0].index({t[1]}))},
      {"$0.gather(#0, $0.slice(#0, 0, 1).to(at::kLong).remainder(#1))", 1, exact,
       RUN(t[0].gather(n[0], t[0].slice(n[0], 0, 1).to(at::kLong).remainder(n[1]))), one_dim_and_size},
      {"$0.index_add(#0, v0, $0.slice(#0, 0, 3), #1)", 1, both,
       RUN(t[0].index_add(n[0], t[1], t[0].slice(n[0], 0, 3), n[1])), dim_and_flag},
      {"$0.index_add(0, v0, $1)", 2, both, RUN(t[0].index_add(0, t[2], t[1]))},
      {"$0.scatter_add(#0, $0.to(at::kLong).remainder(#1), $0 * 2)", 1, exact,
       RUN(t[0].scatter_add(n[0], t[0].to(at::kLong).remainder(n[1]), t[0] * 2)), one_dim_and_size},
      {"$0.index_put({v0}, $1, true)", 2, both, RUN(t[0].index_put({t[2]}, t[1], true))},
      {"$0.index_put({v0 - 2, v0}, $1, true)", 2, both, RUN(t[0].index_put({t[2] - 2, t[2]}, t[1], true))},
      {"at::embedding_dense_backward($0, $0.select(-1, 0).to(at::kLong).remainder(4), 4, #0, false)", 1,
       exact,
       RUN(at::embedding_dense_backward(t[0], t[0].select(-1, 0).to(at::kLong).remainder(4), 4, n[0], false)),
       one_to_three},
      {"$0.tril(#0)", 1, both, RUN(t[0].tril(n[0])), one_to_three},
      {"$0.roll(1, #0)", 1, both, RUN(t[0].roll(1, n[0])), one_dim},
      // changes in place
      {"changed($0, [&](auto& x) { x.slice(#0, #1, #2, #3).add_(1); })", 1, both,
       RUN(changed(t[0], [&](Tensor& x) { x.slice(n[0], n[1], n[2], n[3]).add_(1); })), slice_of},
      {"changed($0, [&](auto& x) { x.select(#0, #1).mul_(2); })", 1, both,
       RUN(changed(t[0], [&](Tensor& x) { x.select(n[0], n[1]).mul_(2); })), a_row},
      {"changed($0, [&](auto& x) { x.select(#0, #1).copy_($1); })", 2, both,
       RUN(changed(t[0], [&](Tensor& x) { x.select(n[0], n[1]).copy_(t[1]); })), a_row},
      {"changed($0, [&](auto& x) { x.transpose(#0, #1).sub_($1); })", 2, both,
       RUN(changed(t[0], [&](Tensor& x) { x.transpose(n[0], n[1]).sub_(t[1]); })), two_dims},
      {"changed($0, [&](auto& x) { x.diagonal().zero_(); })", 1, both,
       RUN(changed(t[0], [&](Tensor& x) { x.diagonal().zero_(); }))},
      // calls
      {"$0.matmul($1)", 2, both, RUN(t[0].matmul(t[1]))},
      {"$0.matmul($1.transpose(-1, -2))", 2, both, RUN(t[0].matmul(t[1].transpose(-1, -2)))},
      {"$0.matmul($0.transpose(-1, -2))", 1, both, RUN(t[0].matmul(t[0].transpose(-1, -2)))},
      {"$0.cumsum(#0)", 1, both, RUN(t[0].cumsum(n[0])), one_dim},
      {"std::get<0>($0.sort(#0))", 1, exact, RUN(std::get<0>(t[0].sort(n[0]))), one_dim},
  };
  return all;
}
#undef RUN

// --- programs

struct Op {
  const Rule* rule;
  std::vector<size_t> arguments;
  Ints numbers;
};

/// Value 0 is an index, then come the inputs, then a value for every op.
struct Program {
  struct Input {
    Ints sizes;
    at::ScalarType dtype;
    int layout;  // 0 row-major, 1 transposed, 2 every other element, 3 expanded
  };
  std::vector<Input> inputs;
  std::vector<Op> ops;
  std::vector<size_t> results;
  bool gradients = false;

  Tensors make_inputs(uint64_t seed, Sort sort) const;
  Tensors run(const Tensors& given) const {
    auto values = given;
    for (const auto& op : ops) values.push_back(run_op(op, values));
    Tensors made;
    for (const size_t r : results) made.push_back(values[r]);
    return made;
  }
  static Tensor run_op(const Op& op, const Tensors& values) {
    Tensors arguments;
    for (const size_t a : op.arguments) arguments.push_back(values[a]);
    arguments.push_back(values[0]);
    return op.rule->run(arguments, op.numbers);
  }
  std::string text() const;
};

Tensors Program::make_inputs(uint64_t seed, Sort sort) const {
  at::manual_seed(seed);
  Tensors made{at::tensor({1, 0, 1}, at::kLong)};
  for (const auto& input : inputs) {
    auto sizes = input.sizes;
    if (input.layout == 1) std::reverse(sizes.begin(), sizes.end());
    if (input.layout == 2 && !sizes.empty()) sizes.back() *= 2;
    if (input.layout == 3 && !sizes.empty()) sizes[0] = 1;
    const auto values =
        sort == exact ? at::randint(-3, 4, sizes).to(input.dtype) : at::randn(sizes, at::dtype(input.dtype));
    auto tensor = values;
    if (input.layout == 1) {
      Ints order;
      for (int64_t d = tensor.dim(); d-- > 0;) order.push_back(d);
      tensor = tensor.permute(order);
    }
    if (input.layout == 2 && !sizes.empty()) tensor = tensor.slice(-1, 1, sizes.back(), 2);
    if (input.layout == 3 && !sizes.empty()) tensor = tensor.expand(input.sizes);
    made.push_back(gradients ? tensor.detach().requires_grad_() : tensor);
  }
  return made;
}

std::string Program::text() const {
  std::ostringstream out;
  const char* layouts[] = {"row-major", "transposed", "every other element", "expanded"};
  out << "  auto v0 = at::tensor({1, 0, 1}, at::kLong);\n";
  for (size_t i = 0; i < inputs.size(); ++i)
    out << "  auto v" << i + 1 << " = input(" << at::IntArrayRef(inputs[i].sizes) << ", " << inputs[i].dtype
        << ", \"" << layouts[inputs[i].layout] << "\");\n";
  for (size_t i = 0; i < ops.size(); ++i) {
    out << "  auto v" << inputs.size() + 1 + i << " = ";
    for (const char* c = ops[i].rule->text; *c; ++c) {
      if (*c == '$')
        out << "v" << ops[i].arguments[static_cast<size_t>(*++c - '0')];
      else if (*c == '#')
        out << ops[i].numbers[static_cast<size_t>(*++c - '0')];
      else
        out << *c;
    }
    out << ";\n";
  }
  out << "  return {";
  for (size_t i = 0; i < results.size(); ++i) out << (i ? ", v" : "v") << results[i];
  out << "};" << (gradients ? "  // with gradients" : "") << "\n";
  return out.str();
}

/// What grows without end is no use: sums of it are not exact, and infinities hide mistakes.
bool tame(const Tensor& t, Sort sort) {
  if (t.numel() > 4000 || t.dim() > 5) return false;
  if (t.numel() == 0) return true;
  const auto values = t.detach().to(at::kDouble);
  // float16 is exact up to 2048, bfloat16 up to 256.
  const double limit = sort == smooth ? 100 : t.scalar_type() == at::kBFloat16 ? 100 : 1000;
  return values.isfinite().all().item<bool>() && values.abs().max().item<double>() < limit;
}

Program generate(uint64_t seed, Sort sort) {
  Random r(seed);
  Program program;
  program.gradients = sort == smooth && r.chance(0.5);
  const Ints base{r.number(1, 5), r.number(1, 9), r.number(1, 5)};
  constexpr at::ScalarType kinds[] = {at::kDouble, at::kLong, at::kFloat, at::kInt,  at::kShort,
                                      at::kChar,   at::kByte, at::kBool,  at::kHalf, at::kBFloat16};
  const int64_t count = r.number(1, 3);
  for (int64_t i = 0; i < count; ++i) {
    Program::Input input;
    for (const int64_t size : base)
      if (r.chance(0.75))
        input.sizes.push_back(r.chance(0.15) ? 1 : r.chance(0.03) ? 0 : r.chance(0.04) ? 70 : size);
    input.dtype = sort == smooth ? at::kDouble : kinds[r.chance(0.5) ? 0 : r.number(0, 9)];
    input.layout = static_cast<int>(r.chance(0.5) ? 0 : r.number(1, program.gradients ? 2 : 3));
    program.inputs.push_back(input);
  }
  auto values = program.make_inputs(seed, sort);
  const int64_t length = r.number(2, 14);
  for (int tries = 0; tries < 120 && static_cast<int64_t>(program.ops.size()) < length; ++tries) {
    Op op{&rules()[static_cast<size_t>(r.number(0, static_cast<int64_t>(rules().size()) - 1))], {}, {}};
    if (!(op.rule->sort & sort)) continue;
    Tensors arguments;
    for (int a = 0; a < op.rule->arity; ++a) {
      // Rather what was made last.
      const auto last = static_cast<int64_t>(values.size()) - 1;
      op.arguments.push_back(static_cast<size_t>(r.chance(0.5) ? last : r.number(1, last)));
      arguments.push_back(values[op.arguments.back()]);
    }
    if (op.rule->pick) op.numbers = op.rule->pick(r, arguments);
    try {
      auto made = Program::run_op(op, values);
      if (!tame(made, sort)) continue;
      values.push_back(std::move(made));
    } catch (const std::exception&) {
      continue;  // the shapes do not fit, or the dtype
    }
    program.ops.push_back(std::move(op));
  }
  // What nobody uses, and some of the rest.
  std::vector<bool> used(values.size(), false);
  for (const auto& op : program.ops)
    for (const size_t a : op.arguments) used[a] = true;
  for (size_t v = program.inputs.size() + 1; v < values.size(); ++v)
    if (!used[v] || r.chance(0.15)) program.results.push_back(v);
  return program;
}

// --- holding it against eager

std::string compare_gradients(const Program& program, const Tensors& inputs, const Tensors& got,
                              const Tensors& want) {
  Tensors ours, theirs, leaves(inputs.begin() + 1, inputs.end());
  for (size_t i = 0; i < want.size(); ++i)
    if (want[i].requires_grad())
      ours.push_back(got[i].mul(0.7).sum()), theirs.push_back(want[i].mul(0.7).sum());
  if (theirs.empty()) return "";
  const auto a = torch::autograd::grad(ours, leaves, {}, {}, false, true),
             b = torch::autograd::grad(theirs, leaves, {}, {}, false, true);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!b[i].defined() && a[i].defined() && a[i].eq(0).all().item<bool>()) continue;
    if (auto what = differs(a[i], b[i], {1e-6, 1e-7, 1e-9}); !what.empty())
      return "the gradient of v" + std::to_string(i + 1) + " " + what;
  }
  return "";
}

/// What is wrong with the program; empty if nothing.
std::string judge(const Program& program, Sort sort, uint64_t seed) {
  const testing_tools::Tolerance tolerance =
      sort == exact ? testing_tools::Tolerance{0, 0, 0} : testing_tools::Tolerance{1e-7, 1e-8, 1e-10};
  const auto function = [&program](Tensors in) { return program.run(in); };
  try {
    const auto fast = compile(function, {.fullgraph = true, .verify = false, .cache = false});
    Tensors first, first_want;
    for (uint64_t call = 0; call < 4; ++call) {  // the first two are the function itself
      const auto inputs = program.make_inputs(seed + call, sort);
      const auto got = fast(inputs), want = program.run(inputs);
      for (size_t i = 0; i < want.size(); ++i) {
        if (auto what = differs(got[i], want[i], tolerance); !what.empty())
          return "call " + std::to_string(call) + ": v" + std::to_string(program.results[i]) + " " + what;
        for (int64_t d = 0; d < want[i].dim() && want[i].numel() > 0; ++d)
          if (want[i].size(d) > 1 && got[i].stride(d) != want[i].stride(d))
            return "v" + std::to_string(program.results[i]) +
                   " has other strides: " + testing::PrintToString(got[i].strides().vec()) + " not " +
                   testing::PrintToString(want[i].strides().vec());
      }
      if (program.gradients)
        if (auto what = compare_gradients(program, inputs, got, want); !what.empty()) return what;
      if (call == 0) {
        first = got;
        for (const auto& t : want) first_want.push_back(t.detach().clone());
      }
    }
    for (size_t i = 0; i < first.size(); ++i)
      if (auto what = differs(first[i], first_want[i], tolerance); !what.empty())
        return "a later call changed v" + std::to_string(program.results[i]) + " of the first: " + what;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return "throws " + text.substr(0, text.find('\n'));
  }
  return "";
}

/// Without the op: what used its value uses its first argument.
Program without(const Program& program, size_t op) {
  auto smaller = program;
  const size_t value = program.inputs.size() + 1 + op, stands_in = program.ops[op].arguments[0];
  const auto moved = [&](size_t v) { return v == value ? stands_in : v > value ? v - 1 : v; };
  smaller.ops.erase(smaller.ops.begin() + static_cast<int64_t>(op));
  for (auto& o : smaller.ops)
    for (auto& a : o.arguments) a = moved(a);
  std::vector<size_t> results;
  for (const size_t r : smaller.results) results.push_back(moved(r));
  std::sort(results.begin(), results.end());
  results.erase(std::unique(results.begin(), results.end()), results.end());
  smaller.results = results;
  return smaller;
}

Program shrunk(Program program, Sort sort, uint64_t seed) {
  const auto still_fails = [&](const Program& candidate) {
    try {
      if (candidate.results.empty()) return false;
      candidate.run(candidate.make_inputs(seed, sort));
    } catch (const std::exception&) {
      return false;
    }
    return !judge(candidate, sort, seed).empty();
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = program.results.size(); program.results.size() > 1 && i-- > 0;) {
      auto candidate = program;
      candidate.results.erase(candidate.results.begin() + static_cast<int64_t>(i));
      if (still_fails(candidate)) program = candidate, changed = true;
    }
    for (size_t i = program.ops.size(); i-- > 0;)
      if (const auto candidate = without(program, i); still_fails(candidate))
        program = candidate, changed = true;
    for (auto& input : program.inputs) {
      const auto before = std::exchange(input.layout, 0);
      if (before == 0) continue;
      if (still_fails(program))
        changed = true;
      else
        input.layout = before;
    }
  }
  return program;
}

void fuzz(Sort sort) {
  const auto count = from_environment("GRAFT_FUZZ_COUNT", 60), start = from_environment("GRAFT_FUZZ_SEED", 1);
  int64_t failures = 0;
  reset();
  for (uint64_t seed = start; seed < start + count && failures < 5; ++seed) {
    const auto program = generate(seed, sort);
    if (from_environment("GRAFT_FUZZ_PRINT", 0)) std::cerr << "seed " << seed << "\n" << program.text();
    if (program.results.empty() || judge(program, sort, seed).empty()) continue;
    ++failures;
    const auto small = shrunk(program, sort, seed);
    ADD_FAILURE() << "seed " << seed << ": " << judge(small, sort, seed) << "\n" << small.text();
  }
  EXPECT_GT(counters().kernels, 0);
}

TEST(CompileFuzz, ExactPrograms) { fuzz(exact); }
TEST(CompileFuzz, SmoothPrograms) { fuzz(smooth); }

// --- what it found, and the op cases with it

template <class F>
void expect_as_eager(F function, const Tensors& inputs) {
  const auto fast = compile(function, {.fullgraph = true, .verify = false, .cache = false});
  const auto changed = [&] {
    Tensors others;
    for (const auto& t : inputs)
      others.push_back(t.is_floating_point()
                           ? at::empty_strided(t.sizes(), t.strides()).normal_().to(t.dtype())
                           : t.clone());
    return others;
  };
  // These are watched, and the function itself.
  fast(inputs);
  fast(changed());
  const auto third = fast(inputs);
  fast(changed());  // must not reach what the call before gave
  EXPECT_EQ(differs(third, function(inputs)), "");
}

TEST(CompileFound, ViewOfWhatAnotherViewChanged) {
  const auto f = [](Tensors in) {
    auto x = in[0].clone();
    x.select(0, 1).mul_(2);
    return x.unsqueeze(1);
  };
  expect_as_eager(f, {at::randn({3, 4})});
}

TEST(CompileFound, ViewThatIsACallKeepsItsMemory) {
  expect_as_eager([](Tensors in) { return (in[0] * 2).unfold(0, 3, 2); }, {at::randn({9})});
  expect_as_eager([](Tensors in) { return (in[0] * 2).as_strided({2, 3}, {1, 2}); }, {at::randn({9})});
  expect_as_eager([](Tensors in) { return (in[0] * 2).view(at::kInt).add(1); }, {at::randn({9})});
}

TEST(CompileFound, TensorsWithNoDimensionOrNoElement) {
  expect_as_eager([](Tensors in) { return in[0].flip({0}) + 1; }, {at::randn({})});
  expect_as_eager([](Tensors in) { return at::minimum(in[0], in[0] * 2).amax(0); }, {at::randn({2, 0})});
  expect_as_eager([](Tensors in) { return in[0].index_select(0, in[1]); },
                  {at::randn({3, 4}), at::tensor(2)});
}

TEST(CompileFound, CheapValueOfAReductionNeededElsewhere) {
  expect_as_eager([](Tensors in) { return in[0].var({1}, false, false).flip({0}); }, {at::randn({3, 2})});
}

TEST(CompileFound, FirstOfEqualsInAnyLayout) {
  expect_as_eager([](Tensors in) { return in[0].argmax(); }, {at::ones({40, 30}).t()});
  expect_as_eager([](Tensors in) { return in[0].argmin(0); }, {at::tensor({200, 3, 3, 250}).to(at::kByte)});
}

Tensor gradient_of(const Tensor& out, const Tensor& of) {
  return torch::autograd::grad({out.sum()}, {of})[0];
}

TEST(CompileFound, GradientOfClampAndOfAnExpandedResult) {
  const auto x = at::randn({4, 5}).requires_grad_();
  for (const auto& f : std::vector<std::function<Tensor(Tensor)>>{
           [](Tensor t) { return t.clamp(-0.5, 0.5); }, [](Tensor t) { return t.exp().expand({3, 4, 5}); },
           [](Tensor t) { return at::layer_norm(t, {5}, t.select(0, 0)); }}) {
    const auto fast = compile(f, {.fullgraph = true, .cache = false});
    EXPECT_EQ(differs(gradient_of(fast(x), x), gradient_of(f(x), x)), "");
  }
}

TEST(CompileFound, ViewOfAnExpandedInputWithAGradientIsRefused) {
  const auto fast = compile([](Tensor t) { return t.select(0, 1); }, {.fullgraph = true, .cache = false});
  const auto x = at::randn({1}).expand({4}).detach().requires_grad_();
  EXPECT_THROW(fast(x), GraphBreak);
}

}  // namespace
}  // namespace graft
