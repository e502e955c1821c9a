// The operators that stateful programs are made of.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "stateful_program.h"

namespace graft::stateful {
namespace {

using namespace random_programs;

/// Whole dtypes have no infinities: what a cast makes of them is each CPU's own.
Tensor cast(const Tensor& t, int64_t dtype, const Mode& mode) {
  const auto to = dtype_of(dtype);
  if (at::isFloatingType(to)) return t.to(mode.wide ? at::kDouble : to);
  return (t.is_floating_point() ? t.nan_to_num(0, 3, -3).clamp(-100, 100) : t).to(to);
}

/// As cast(): what may be copied into the target.
Tensor fit(const Tensor& target, const Tensor& t) {
  return !target.is_floating_point() && !target.is_complex() && t.is_floating_point() ? t.nan_to_num(0, 3, -3)
                                                                                      : t;
}

Tensor swapped(const Tensor& a, const Tensor& b) {
  const auto c = a.clone();
  a.copy_(fit(a, b));
  b.copy_(fit(b, c));
  return a;
}

/// Whole numbers have no such bit, although torch sets it.
Tensor negative_view(const Tensor& t) {
  TORCH_CHECK(t.is_floating_point() || t.is_complex());
  return at::_neg_view(t);
}

template <class F>
Tensor without_gradient(const Tensor& t, F change) {
  const at::NoGradGuard guard;
  change(t);
  return t;
}

/// Rounds, and lets gradients pass: straight through.
struct Straight : torch::autograd::Function<Straight> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& t) { return t.round(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * 3};
  }
};

Tensor hooked(const Tensor& t) {
  auto made = t * 1;
  if (made.requires_grad()) made.register_hook([](const Tensor& gradient) { return gradient * 2; });
  return made;
}

Tensor retained(const Tensor& t) {
  auto made = t * 2;
  if (made.requires_grad()) made.retain_grad();
  return made;
}

Tensor seeded(const Tensor& t, int64_t seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return at::randint_like(t, 4);
}

Tensor into_an_empty_one(const Tensor& a, const Tensor& b) {
  auto out = at::empty({0}, a.options());
  const at::NoGradGuard guard;
  at::add_out(out, a, b);
  return out;
}

/// Gives the tensor object other memory.
Tensor moved(const Tensor& t, const Tensor& values) {
  TORCH_CHECK(!t.is_view());
  t.set_data(at::empty_like(t.detach()).copy_(fit(t, values).detach() * 2));
  return t;
}

/// Begins before the tensor does, where there is memory.
Tensor two_from_before(const Tensor& t) {
  return t.as_strided({2}, {1}, std::max<int64_t>(t.storage_offset() - 1, 0));
}

Tensor without_history(const Tensor& t) {
  const at::NoGradGuard guard;
  return t * 2;
}

#define RUN(expression)                                             \
  [](const Tensors& t, const Ints& n, const Mode& mode) -> Tensor { \
    (void)n;                                                        \
    (void)mode;                                                     \
    return expression;                                              \
  }

void add_pointwise(std::vector<Rule>& all) {
  const std::vector<Rule> rows = {
      {"-$0", 1, both, Effect::makes, RUN(-t[0])},
      {"$0.abs()", 1, both, Effect::makes, RUN(t[0].abs())},
      {"$0.relu()", 1, both, Effect::makes, RUN(t[0].relu())},
      {"$0.abs().relu()", 1, both, Effect::makes, RUN(t[0].abs().relu())},
      {"$0 + #0", 1, both, Effect::makes, RUN(t[0] + n[0]), one_to_three},
      {"$0 * 2", 1, both, Effect::makes, RUN(t[0] * 2)},
      {"#0 - $0", 1, both, Effect::makes, RUN(n[0] - t[0]), one_to_three},
      {"$0 + $1", 2, both, Effect::makes, RUN(t[0] + t[1])},
      {"$0 - $1", 2, both, Effect::makes, RUN(t[0] - t[1])},
      {"$0 * $1", 2, both, Effect::makes, RUN(t[0] * t[1])},
      {"at::add($0, $1, #0)", 2, both, Effect::makes, RUN(at::add(t[0], t[1], n[0])), one_to_three},
      {"at::sub($0, $1, #0)", 2, both, Effect::makes, RUN(at::sub(t[0], t[1], n[0])), one_to_three},
      {"at::maximum($0, $1)", 2, both, Effect::makes, RUN(at::maximum(t[0], t[1]))},
      {"at::minimum($0, $1)", 2, both, Effect::makes, RUN(at::minimum(t[0], t[1]))},
      {"$0.eq($1)", 2, exact, Effect::makes, RUN(t[0].eq(t[1]))},
      {"$0.gt($1)", 2, exact, Effect::makes, RUN(t[0].gt(t[1]))},
      {"at::where($0.gt(0), $1, $2)", 3, exact, Effect::makes, RUN(at::where(t[0].gt(0), t[1], t[2]))},
      {"$0.masked_fill($1.eq(1), #0)", 2, exact, Effect::makes, RUN(t[0].masked_fill(t[1].eq(1), n[0])),
       one_to_three},
      {"$0.clamp(-2, #0)", 1, both, Effect::makes, RUN(t[0].clamp(-2, n[0])), one_to_three},
      {"$0.to(dtype_of(#0))", 1, both, Effect::makes, RUN(cast(t[0], n[0], mode)), a_dtype},
      {"$0.clone()", 1, both, Effect::makes, RUN(t[0].clone())},
      {"$0.gt(0).masked_fill($1.gt(1), 0.5)", 2, exact, Effect::makes,
       RUN(t[0].gt(0).masked_fill(t[1].gt(1), 0.5))},
      {"$0.contiguous()", 1, both, Effect::makes, RUN(t[0].contiguous())},
      {"$0.tanh()", 1, smooth, Effect::makes, RUN(t[0].tanh())},
      {"$0.sigmoid()", 1, smooth, Effect::makes, RUN(t[0].sigmoid())},
      {"$0.sin()", 1, smooth, Effect::makes, RUN(t[0].sin())},
      // Of infinity some of ATen's kernels give NaN, which is not right, and a clamp or a cast makes it a
      // number.
      {"at::gelu($0.clamp(-30, 30))", 1, smooth, Effect::makes, RUN(at::gelu(t[0].clamp(-30, 30)))},
      {"at::silu($0)", 1, smooth, Effect::makes, RUN(at::silu(t[0]))},
      {"$0 * 0.5", 1, smooth, Effect::makes, RUN(t[0] * 0.5)},
      {"$0 / ($1.abs() + 1)", 2, smooth, Effect::makes, RUN(t[0] / (t[1].abs() + 1))},
      {"at::dropout($0, 0.5, training)",
       1,
       both,
       Effect::makes,
       RUN(at::dropout(t[0], 0.5, mode.training)),
       {},
       true},
      {"at::randint_like($0, 4)", 1, exact, Effect::makes, RUN(at::randint_like(t[0], 4)), {}, true},
      {"$0.masked_fill(at::rand_like($0, at::kFloat).gt(0.5), 2)",
       1,
       exact,
       Effect::makes,
       RUN(t[0].masked_fill(at::rand_like(t[0], at::dtype(at::kFloat)).gt(0.5), 2)),
       {},
       true},
  };
  all.insert(all.end(), rows.begin(), rows.end());
}

void add_views(std::vector<Rule>& all) {
  const std::vector<Rule> rows = {
      {"$0.transpose(#0, #1)", 1, both, Effect::views, RUN(t[0].transpose(n[0], n[1])), two_dims},
      {"$0.slice(#0, #1, #2, #3)", 1, both, Effect::views, RUN(t[0].slice(n[0], n[1], n[2], n[3])), slice_of},
      {"$0.select(#0, #1)", 1, both, Effect::views, RUN(t[0].select(n[0], n[1])), a_row},
      {"$0.unsqueeze(#0)", 1, both, Effect::views, RUN(t[0].unsqueeze(n[0])), one_dim},
      {"$0.view({-1})", 1, both, Effect::views, RUN(t[0].view({-1}))},
      {"$0.view($0.sizes())", 1, both, Effect::views, RUN(t[0].view(t[0].sizes()))},
      {"$0.flatten()", 1, both, Effect::views, RUN(t[0].flatten())},
      {"$0.diagonal()", 1, both, Effect::views, RUN(t[0].diagonal())},
      {"$0.detach()", 1, both, Effect::views, RUN(t[0].detach())},
      {"$0.expand_as($1)", 2, both, Effect::views, RUN(t[0].expand_as(t[1]))},
      {"$0.unsqueeze(0).expand({2, -1, -1})", 1, both, Effect::views,
       RUN(t[0].unsqueeze(0).expand({2, -1, -1}))},
      {"$0.unfold(#0, 2, #1)", 1, both, Effect::views, RUN(t[0].unfold(n[0], 2, n[1])),
       [](Random& r, const Tensors& t) { return Ints{any_dim(r, t[0]), r.number(1, 2)}; }},
      {"$0.chunk(2, #0).back()", 1, both, Effect::views, RUN(t[0].chunk(2, n[0]).back()), one_dim},
      {"$0.conj()", 1, both, Effect::views, RUN(t[0].conj())},
      {"at::_neg_view($0)", 1, both, Effect::views, RUN(negative_view(t[0]))},
      {"at::real($0)", 1, both, Effect::views, RUN(at::real(t[0]))},
      {"at::imag($0)", 1, both, Effect::views, RUN(at::imag(t[0]))},
      {"$0.mH()", 1, both, Effect::views, RUN(t[0].mH())},
      {"$0.squeeze()", 1, both, Effect::views, RUN(t[0].squeeze())},
      {"$0.permute({1, 0})", 1, both, Effect::views, RUN(t[0].permute({1, 0}))},
  };
  all.insert(all.end(), rows.begin(), rows.end());
}

void add_reductions_and_calls(std::vector<Rule>& all) {
  const std::vector<Rule> rows = {
      {"$0.sum(#0, #1)", 1, both, Effect::makes, RUN(t[0].sum(n[0], n[1] != 0)), dim_and_flag},
      {"$0.sum()", 1, both, Effect::makes, RUN(t[0].sum())},
      {"$0.amax(#0, #1)", 1, both, Effect::makes, RUN(t[0].amax(n[0], n[1] != 0)), dim_and_flag},
      {"$0.amin(#0, #1)", 1, exact, Effect::makes, RUN(t[0].amin(n[0], n[1] != 0)), dim_and_flag},
      {"$0.max()", 1, both, Effect::makes, RUN(t[0].max())},
      {"$0.any()", 1, exact, Effect::makes, RUN(t[0].any())},
      {"$0.argmax(#0, #1)", 1, exact, Effect::makes, RUN(t[0].argmax(n[0], n[1] != 0)), dim_and_flag},
      {"std::get<1>($0.max(#0, #1))", 1, exact, Effect::makes, RUN(std::get<1>(t[0].max(n[0], n[1] != 0))),
       dim_and_flag},
      {"$0.mean(#0, #1)", 1, smooth, Effect::makes, RUN(t[0].mean(n[0], n[1] != 0)), dim_and_flag},
      {"$0.var({#0}, #1)", 1, smooth, Effect::makes, RUN(t[0].var(at::IntArrayRef(n[0]), n[1])),
       [](Random& r, const Tensors& t) { return Ints{any_dim(r, t[0]), r.number(0, 2)}; }},
      {"at::add($0.matmul($1), $1.matmul($0), #0)", 2, both, Effect::makes,
       RUN(at::add(t[0].matmul(t[1]), t[1].matmul(t[0]), n[0])), one_to_three},
      {"at::conv1d($0, $1)", 2, both, Effect::makes, RUN(at::conv1d(t[0], t[1]))},
      {"$0.softmax(#0)", 1, smooth, Effect::makes, RUN(t[0].softmax(n[0])), one_dim},
      {"$0.log_softmax(#0)", 1, smooth, Effect::makes, RUN(t[0].log_softmax(n[0])), one_dim},
      {"at::layer_norm($0, {$0.size(-1)})", 1, smooth, Effect::makes,
       RUN(at::layer_norm(t[0], {t[0].size(-1)}))},
      {"$0.matmul($1)", 2, both, Effect::makes, RUN(t[0].matmul(t[1]))},
      {"$0.matmul($1.transpose(-1, -2))", 2, both, Effect::makes, RUN(t[0].matmul(t[1].transpose(-1, -2)))},
      {"at::linear($0, $1)", 2, both, Effect::makes, RUN(at::linear(t[0], t[1]))},
      {"at::addmm($0, $1, $2)", 3, both, Effect::makes, RUN(at::addmm(t[0], t[1], t[2]))},
      {"$0.cumsum(#0)", 1, both, Effect::makes, RUN(t[0].cumsum(n[0])), one_dim},
      {"std::get<0>($0.sort(#0))", 1, exact, Effect::makes, RUN(std::get<0>(t[0].sort(n[0]))), one_dim},
      {"$0.roll(1, #0)", 1, both, Effect::makes, RUN(t[0].roll(1, n[0])), one_dim},
      {"$0.flip({#0})", 1, both, Effect::makes, RUN(t[0].flip({n[0]})), one_dim},
      {"at::cat({$0, $1}, #0)", 2, both, Effect::makes, RUN(at::cat({t[0], t[1]}, n[0])), one_dim},
      {"at::stack({$0, $1}, #0)", 2, both, Effect::makes, RUN(at::stack({t[0], t[1]}, n[0])), one_dim},
      {"$0.index_select(#0, index)", 1, both, Effect::makes, RUN(t[0].index_select(n[0], t[1])), one_dim},
      {"$0.index({index})", 1, both, Effect::makes, RUN(t[0].index({t[1]}))},
      {"$0.index_add(0, index, $1)", 2, both, Effect::makes, RUN(t[0].index_add(0, t[2], t[1]))},
      {"$0.repeat_interleave(2, #0)", 1, both, Effect::makes, RUN(t[0].repeat_interleave(2, n[0])), one_dim},
      {"$0.tril(#0)", 1, both, Effect::makes, RUN(t[0].tril(n[0] - 1)), one_to_three},
      {"at::zeros_like($0)", 1, both, Effect::makes, RUN(at::zeros_like(t[0]))},
  };
  all.insert(all.end(), rows.begin(), rows.end());
}

/// More than computing: such functions run as they are, or the same is done by compiled code.
void add_side_effects(std::vector<Rule>& all) {
  const std::vector<Rule> rows = {
      {"hooked($0)", 1, both, Effect::makes, RUN(hooked(t[0]))},
      {"retained($0)", 1, both, Effect::makes, RUN(retained(t[0]))},
      {"seeded($0, #0)", 1, exact, Effect::makes, RUN(seeded(t[0], n[0])), one_to_three, true},
      {"into_an_empty_one($0, $1)", 2, both, Effect::makes, RUN(into_an_empty_one(t[0], t[1]))},
      {"without_history($0)", 1, both, Effect::makes, RUN(without_history(t[0]))},
      {"Straight::apply($0)", 1, exact, Effect::makes, RUN(Straight::apply(t[0]))},
      {"$0.data()", 1, both, Effect::views, RUN(t[0].data())},
      {"moved($0, $1)", 2, both, Effect::changes, RUN(moved(t[0], t[1]))},
      {"two_from_before($0)", 1, both, Effect::views, RUN(two_from_before(t[0]))},
      {"two_from_before($0).add_(1), $0",
       1,
       both,
       Effect::changes,
       RUN((two_from_before(t[0]).add_(1), t[0])),
       {},
       false,
       true},
  };
  all.insert(all.end(), rows.begin(), rows.end());
}

void add_changes(std::vector<Rule>& all) {
  const std::vector<Rule> rows = {
      {"$0.add_(#0)", 1, both, Effect::changes, RUN(t[0].add_(n[0])), one_to_three},
      {"$0.add_($1)", 2, both, Effect::changes, RUN(t[0].add_(t[1]))},
      {"$0.sub_($1)", 2, both, Effect::changes, RUN(t[0].sub_(t[1]))},
      {"$0.mul_(2)", 1, exact, Effect::changes, RUN(t[0].mul_(2))},
      {"$0.mul_(0.5)", 1, smooth, Effect::changes, RUN(t[0].mul_(0.5))},
      {"$0.mul_($1)", 2, both, Effect::changes, RUN(t[0].mul_(t[1]))},
      {"$0.copy_(fit($0, $1))", 2, both, Effect::changes, RUN(t[0].copy_(fit(t[0], t[1])))},
      {"$0.copy_(fit($0, $1))", 2, both, Effect::changes, RUN(t[0].copy_(fit(t[0], t[1])))},
      {"$0.zero_()", 1, both, Effect::changes, RUN(t[0].zero_()), {}, false, false, true},
      {"$0.fill_(#0)", 1, both, Effect::changes, RUN(t[0].fill_(n[0])), one_to_three, false, false, true},
      {"$0.neg_()", 1, both, Effect::changes, RUN(t[0].neg_())},
      {"$0.relu_()", 1, both, Effect::changes, RUN(t[0].relu_())},
      {"$0.clamp_(-1, #0)", 1, both, Effect::changes, RUN(t[0].clamp_(-1, n[0])), one_to_three},
      {"$0.masked_fill_($1.gt(0), #0)", 2, exact, Effect::changes, RUN(t[0].masked_fill_(t[1].gt(0), n[0])),
       one_to_three},
      {"$0.tanh_()", 1, smooth, Effect::changes, RUN(t[0].tanh_())},
      {"$0.lerp_($1, 0.5)", 2, smooth, Effect::changes, RUN(t[0].lerp_(t[1], 0.5))},
      {"swapped($0, $1)", 2, both, Effect::changes, RUN(swapped(t[0], t[1]))},
      {"$0.copy_($0.roll(1, #0))", 1, both, Effect::changes, RUN(t[0].copy_(t[0].roll(1, n[0]))), one_dim},
      {"$0.copy_($0.cumsum(#0).clamp(-3, 3))", 1, both, Effect::changes,
       RUN(t[0].copy_(t[0].cumsum(n[0]).clamp(-3, 3))), one_dim},
      {"$0.copy_(std::get<0>($0.sort(#0)))", 1, exact, Effect::changes,
       RUN(t[0].copy_(std::get<0>(t[0].sort(n[0])))), one_dim},
      {"$0.copy_($0.matmul($1).clamp(-3, 3))", 2, both, Effect::changes,
       RUN(t[0].copy_(t[0].matmul(t[1]).clamp(-3, 3)))},
      {"$0.copy_($0.flip({#0}))", 1, both, Effect::changes, RUN(t[0].copy_(t[0].flip({n[0]}))), one_dim},
      {"$0.copy_($0.t().clone())", 1, both, Effect::changes, RUN(t[0].copy_(t[0].t().clone()))},
      {"$0.index_copy_(#0, index, $0.index_select(#0, index) + 1)", 1, both, Effect::changes,
       RUN(t[0].index_copy_(n[0], t[1].slice(0, 0, 2), t[0].index_select(n[0], t[1].slice(0, 0, 2)) + 1)),
       one_dim},
      {"$0.index_add_(0, index, $1)", 2, both, Effect::changes, RUN(t[0].index_add_(0, t[2], t[1]))},
      {"$0.index_put_({index}, $1)", 2, both, Effect::changes,
       RUN(t[0].index_put_({t[2].slice(0, 0, 2)}, t[1]))},
      {"$0.bernoulli_(0.5)", 1, exact, Effect::changes, RUN(t[0].bernoulli_(0.5)), {}, true},
      {"in_place_without_gradient: $0.clamp_(-2, 1)", 1, both, Effect::changes,
       RUN(without_gradient(t[0], [](const Tensor& x) { x.clamp_(-2, 1); }))},
      {"in_place_without_gradient: $0.copy_(fit($0, $1))", 2, both, Effect::changes,
       RUN(without_gradient(t[0], [&](const Tensor& x) { x.copy_(fit(x, t[1])); }))},
      {"$0.slice(#0, #1, #2, #3).add_(1), $0", 1, both, Effect::changes,
       RUN((t[0].slice(n[0], n[1], n[2], n[3]).add_(1), t[0])), slice_of, false, true},
      {"$0.select(#0, #1).copy_(fit($0, $1)), $0", 2, both, Effect::changes,
       RUN((t[0].select(n[0], n[1]).copy_(fit(t[0], t[1])), t[0])), a_row, false, true},
      {"$0.select(#0, #1).zero_(), $0", 1, both, Effect::changes,
       RUN((t[0].select(n[0], n[1]).zero_(), t[0])), a_row, false, true, true},
      {"$0.transpose(#0, #1).sub_($1), $0", 2, both, Effect::changes,
       RUN((t[0].transpose(n[0], n[1]).sub_(t[1]), t[0])), two_dims, false, true},
      {"$0.diagonal().fill_(#0), $0", 1, both, Effect::changes, RUN((t[0].diagonal().fill_(n[0]), t[0])),
       one_to_three, false, true, true},
  };
  all.insert(all.end(), rows.begin(), rows.end());
}
Tensor repeated(Tensor t, int64_t times) {
  for (int64_t i = 0; i < times; ++i) t = t + 1;
  return t;
}

Tensor until_small(Tensor t) {
  for (int i = 0; i < 3 && t.max().item<double>() > 2; ++i) t = t - 1;
  return t;
}

/// C++ code that goes by values: a number that it keeps (`host`, another one in some calls), elements of
/// tensors. What it reads is exact: rounding must not decide.
void add_decisions(std::vector<Rule>& all) {
  std::vector<Rule> rows = {
      {"$0 * host", 1, both, Effect::makes, RUN(t[0] * mode.host)},
      {"$0 - 0.5 * host", 1, both, Effect::makes, RUN(t[0] - 0.5 * static_cast<double>(mode.host))},
      {"$0.clamp(-2, host)", 1, both, Effect::makes, RUN(t[0].clamp(-2, mode.host))},
      {"host > 1 ? $0 + $1 : $0.neg()", 2, both, Effect::makes,
       RUN(mode.host > 1 ? t[0] + t[1] : t[0].neg())},
      {"host == 1 ? $0.relu_() : $0", 1, both, Effect::changes, RUN(mode.host == 1 ? t[0].relu_() : t[0])},
      {"$0.mul_(host)", 1, both, Effect::changes, RUN(t[0].mul_(mode.host))},
      {"repeated($0, host)", 1, both, Effect::makes, RUN(repeated(t[0], mode.host))},
      {"$0.sum().item<double>() > host ? $0 + 1 : $0 * 2", 1, exact, Effect::makes,
       RUN(t[0].sum().item<double>() > static_cast<double>(mode.host) ? t[0] + 1 : t[0] * 2)},
      {"$0 - $0.max().item()", 1, exact, Effect::makes, RUN(t[0] - t[0].max().item())},
      {"until_small($0)", 1, exact, Effect::makes, RUN(until_small(t[0]))},
      {"$0.gt(0).any().item<bool>() ? $0.neg_() : $0", 1, exact, Effect::changes,
       RUN(t[0].gt(0).any().item<bool>() ? t[0].neg_() : t[0])},
      {"$0.masked_select($1.gt(0)).sum() + $0", 2, exact, Effect::makes,
       RUN(t[0].masked_select(t[1].gt(0)).sum() + t[0])},
  };
  for (auto& row : rows) row.decides = true;
  all.insert(all.end(), rows.begin(), rows.end());
}
#undef RUN

}  // namespace

const std::vector<Rule>& rules() {
  static const auto all = [] {
    std::vector<Rule> rows;
    add_pointwise(rows);
    add_views(rows);
    add_reductions_and_calls(rows);
    add_changes(rows);
    add_side_effects(rows);
    add_decisions(rows);
    return rows;
  }();
  return all;
}

}  // namespace graft::stateful
