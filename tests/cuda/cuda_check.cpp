// Functions on a GPU, compiled, against the same in eager code: results, gradients, inputs that are changed,
// indices out of range. Exit status: 0 all are right, 1 some are not, 3 there is no GPU.
#include <c10/cuda/CUDAGuard.h>
#include <torch/torch.h>

#include <functional>
#include <iostream>

#include "graft/compile.h"
#include "graft/compile_step.h"
#include "graft/error.h"

namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

struct Case {
  const char* name;
  std::function<Tensors(Tensors)> function;
  std::function<Tensors(int)> arguments;  ///< of a call
  double tolerance = 1e-5;
};

Tensor numbers(int call, at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(call) + 1);
  return at::randn(sizes, generator).to(at::kCUDA).to(dtype);
}

Tensor attention(const Tensors& t) {
  return at::scaled_dot_product_attention(t[0] * 2, t[1], t[2], {}, 0, /*is_causal=*/true) + 1;
}

std::function<Tensors(int)> heads(at::ScalarType dtype) {
  return [dtype](int call) {
    Tensors all;
    for (int i = 0; i < 3; ++i) all.push_back(numbers(call * 3 + i, {2, 4, 40, 64}, dtype));
    return all;
  };
}

std::vector<Case> cases() {
  const auto one = [](at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    const auto owned = sizes.vec();
    return [owned, dtype](int call) { return Tensors{numbers(call, owned, dtype)}; };
  };
  std::vector<Case> all = {
      {"pointwise", [](Tensors t) { return Tensors{(t[0] * 2 + 1).tanh() * t[0].sigmoid()}; }, one({33, 65})},
      {"pointwise, half", [](Tensors t) { return Tensors{(t[0] * 2 + 1).relu()}; }, one({33, 65}, at::kHalf),
       1e-2},
      {"pointwise, bfloat16", [](Tensors t) { return Tensors{t[0].exp() + t[0]}; }, one({128}, at::kBFloat16),
       2e-2},
      {"softmax", [](Tensors t) { return Tensors{t[0].softmax(-1)}; }, one({17, 300})},
      {"softmax of short rows", [](Tensors t) { return Tensors{t[0].softmax(-1)}; }, one({300, 17})},
      {"layer norm", [](Tensors t) { return Tensors{at::layer_norm(t[0], {t[0].size(-1)})}; }, one({9, 512})},
      {"sums of columns", [](Tensors t) { return Tensors{t[0].sum(0), t[0].mean()}; }, one({200, 33})},
      {"argmax", [](Tensors t) { return Tensors{t[0].argmax(1), t[0].amax(0)}; }, one({5, 700})},
      {"transposed", [](Tensors t) { return Tensors{t[0].t().contiguous() + 1}; }, one({31, 64})},
      {"embedding", [](Tensors t) { return Tensors{at::embedding(t[0], t[1]) * 2}; },
       [](int call) {
         return Tensors{numbers(call, {50, 16}),
                        (numbers(call, {4, 9}) * 100).abs().to(at::kLong).remainder(50)};
       }},
      {"layers",
       [](Tensors t) { return Tensors{at::gelu(at::addmm(t[2], t[0], t[1])).softmax(-1).mm(t[1].t())}; },
       [](int call) { return Tensors{numbers(call, {24, 64}), numbers(7, {64, 256}), numbers(8, {256})}; },
       1e-4},
      {"a number on the CPU, and a copy from there",
       [](Tensors t) {
         return Tensors{t[0] * t[1] + t[2].to(t[0].device()), (t[2] * 2).to(t[0].device()).exp() + t[0]};
       },
       [](int call) {
         return Tensors{numbers(call, {33, 65}), at::scalar_tensor(call + 0.5),
                        numbers(call + 9, {33, 65}).cpu()};
       }},
      {"attention", [](Tensors t) { return Tensors{attention(t)}; }, heads(at::kFloat), 1e-4},
      {"attention, half", [](Tensors t) { return Tensors{attention(t)}; }, heads(at::kHalf), 1e-2},
      {"attention, bfloat16", [](Tensors t) { return Tensors{attention(t)}; }, heads(at::kBFloat16), 5e-2},
      // A GPU keeps the statistics for the backward pass, where a CPU keeps nothing.
      {"batch norm outside of training",
       [](Tensors t) {
         const auto mean = t[1].detach(), var = t[1].detach().abs() + 0.5;
         return Tensors{at::batch_norm(t[0], {}, {}, mean, var, false, 0.1, 1e-5, true),
                        at::batch_norm(t[0], t[1], t[2], mean, var, false, 0.1, 1e-5, true)};
       },
       [](int call) {
         return Tensors{numbers(call, {3, 6, 5, 7}), numbers(call + 9, {6}), numbers(call + 18, {6})};
       }},
      {"changed in place",
       [](Tensors t) {
         t[0].mul_(2).add_(1);
         return Tensors{t[0].sum(1)};
       },
       one({20, 256})},
  };
  for (const int64_t queries : {1, 3, 5})
    all.push_back({queries == 1   ? "one query"
                   : queries == 3 ? "three queries"
                                  : "five queries",
                   [](Tensors t) {
                     const auto repeated = [](const Tensor& x) {
                       return x.unsqueeze(2).expand({2, 2, 4, 300, 64}).reshape({2, 8, 300, 64});
                     };
                     return Tensors{
                         at::scaled_dot_product_attention(t[0], repeated(t[1]), repeated(t[2]), t[3]) + 1};
                   },
                   [=](int call) {
                     return Tensors{numbers(call, {2, 8, queries, 64}, at::kBFloat16),
                                    numbers(call + 20, {2, 2, 300, 64}, at::kBFloat16),
                                    numbers(call + 40, {2, 2, 300, 64}, at::kBFloat16),
                                    numbers(call, {2, 1, 1, 300}).gt(-1).expand({2, 1, queries, 300})};
                   },
                   5e-2});
  for (const auto dtype : {at::kHalf, at::kBFloat16})
    for (const int64_t rows : {1, 2, 3})
      all.push_back({rows == 1   ? "a vector with weights"
                     : rows == 2 ? "two rows with weights"
                                 : "three rows with weights",
                     [](Tensors t) {
                       const auto gate = t[0].mm(t[1].t()), up = t[0].mm(t[2].t());
                       return Tensors{at::silu(gate) * up, at::addmm(t[3], t[0], t[1].t()) + 1};
                     },
                     [=](int call) {
                       return Tensors{numbers(call, {rows, 520}, dtype), numbers(7, {700, 520}, dtype) / 64,
                                      numbers(8, {700, 520}, dtype) / 64, numbers(9, {700}, dtype)};
                     },
                     3e-2});
  return all;
}

bool near(const Tensor& got, const Tensor& want, double tolerance) {
  if (got.sizes() != want.sizes() || got.scalar_type() != want.scalar_type() || got.device() != want.device())
    return false;
  return at::allclose(got.to(at::kDouble), want.to(at::kDouble), tolerance, tolerance);
}

constexpr graft::Mode modes[] = {graft::Mode::default_, graft::Mode::reduce_overhead};

std::string name_of(graft::Mode mode) { return mode == graft::Mode::default_ ? "" : ", recorded"; }

std::string failure_of(const Case& each, graft::Mode mode) {
  const auto fast = graft::compile([&](Tensors t) { return each.function(std::move(t)); },
                                   {.mode = mode, .fullgraph = true, .cache = false});
  for (int call = 0; call < 8; ++call) {
    const at::NoGradGuard no_grad;
    auto mine = each.arguments(call), theirs = mine;
    for (auto& t : theirs) t = t.clone();
    const auto got = fast(mine), want = each.function(theirs);
    for (size_t i = 0; i < want.size(); ++i)
      if (!near(got[i], want[i], each.tolerance))
        return "call " + std::to_string(call) + ", result " + std::to_string(i);
    for (size_t i = 0; i < mine.size(); ++i)
      if (!near(mine[i], theirs[i], each.tolerance))
        return "call " + std::to_string(call) + ", argument " + std::to_string(i);
  }
  return "";
}

std::string gradient_failure_of(const Case& each, graft::Mode mode) {
  const auto fast =
      graft::compile([&](Tensors t) { return each.function(std::move(t)); }, {.mode = mode, .cache = false});
  for (int call = 0; call < 7; ++call) {
    Tensors sides[2];
    for (auto& side : sides) {
      auto arguments = each.arguments(call);
      for (auto& t : arguments)
        if (t.is_floating_point()) t.requires_grad_();
      auto results = &side == &sides[0] ? fast(arguments) : each.function(arguments);
      Tensor loss = at::zeros({}, at::kCUDA);
      for (const auto& r : results)
        if (r.requires_grad()) loss = loss + (r.to(at::kFloat) * r.to(at::kFloat)).sum();
      if (!loss.requires_grad()) return "";
      loss.backward();
      for (const auto& t : arguments) side.push_back(t.grad());
    }
    for (size_t i = 0; i < sides[0].size(); ++i) {
      if (sides[0][i].defined() != sides[1][i].defined())
        return "call " + std::to_string(call) + ", presence of a gradient";
      if (sides[1][i].defined() && !near(sides[0][i], sides[1][i], each.tolerance * 20))
        return "call " + std::to_string(call) + ", gradient " + std::to_string(i);
    }
  }
  return "";
}

std::string out_of_range(graft::Mode mode) {
  const auto fast = graft::compile([](Tensor table, Tensor ids) { return at::embedding(table, ids) + 1; },
                                   {.mode = mode, .cache = false});
  const at::NoGradGuard no_grad;
  const auto table = numbers(0, {10, 4}), good = at::tensor({1, 9}, at::kLong).to(at::kCUDA);
  for (int i = 0; i < 7; ++i)
    fast(table.clone(), good.clone());  // other tensors: the call below is not watched
  try {
    fast(table, at::tensor({1, 10}, at::kLong).to(at::kCUDA));
    return "no error";
  } catch (const graft::Error& error) {
    if (std::string(error.what()).find("out of range") == std::string::npos) return error.what();
  }
  return near(fast(table, good), at::embedding(table, good) + 1, 1e-6) ? "" : "the next call is wrong";
}

/// Rows of a cache at places that are data, as decoding writes them; a place that is not one changes nothing,
/// and neither does an id that is not in the table.
std::string rows_in_place(graft::Mode mode) {
  const auto function = [](Tensor cache, Tensor other, Tensor table, Tensor ids, Tensor where) {
    const auto x = at::embedding(table, ids).view({2, -1, 3, 8}).transpose(1, 2);
    cache.index_copy_(2, where, x);
    other.index_copy_(2, where, x * 2);
    where.add_(1);
    return cache.sum() + other.sum();
  };
  const auto fast = graft::compile(function, {.mode = mode, .fullgraph = true, .cache = false});
  const at::NoGradGuard no_grad;
  const auto table = numbers(0, {10, 24});
  const auto places = [](std::vector<int64_t> at) { return at::tensor(at, at::kLong).to(at::kCUDA); };
  std::vector<Tensors> sides(2);
  for (auto& side : sides)
    side = {numbers(1, {2, 3, 20, 8}), numbers(2, {2, 3, 20, 8}), table, places({1, 2, 3, 4}),
            places({0, 1})};
  // Other ids each time: the calls below are not watched (call 8 is: the function cannot be replayed).
  const auto call = [&](const auto& f, Tensors& t) { return f(t[0], t[1], t[2], t[3].clone(), t[4]); };
  for (int i = 0; i < 9; ++i) {
    const auto got = call(fast, sides[0]), want = call(function, sides[1]);
    if (!near(got, want, 1e-4)) return "call " + std::to_string(i);
    for (size_t k = 0; k < 5; ++k)
      if (!near(sides[0][k], sides[1][k], 1e-6)) return "argument " + std::to_string(k);
  }
  for (const bool bad_id : {true, false}) {
    auto t = sides[0];
    if (bad_id)
      t[3] = places({1, 2, 3, 10});
    else
      t[4].copy_(places({3, 20}));
    const Tensors before{t[0].clone(), t[1].clone(), t[4].clone()};
    try {
      call(fast, t);
      return "no error";
    } catch (const graft::Error& error) {
      if (std::string(error.what()).find("out of range") == std::string::npos) return error.what();
    }
    if (!near(t[0], before[0], 0) || !near(t[1], before[1], 0) || !near(t[4], before[2], 0))
      return "a call that failed has changed something";
  }
  for (auto& side : sides) side[4].copy_(places({5, 2}));
  const auto got = call(fast, sides[0]), want = call(function, sides[1]);
  return near(got, want, 1e-4) && near(sides[0][0], sides[1][0], 1e-6) ? "" : "the next call is wrong";
}

/// What a caller keeps stays as it is, whatever is called later, and on whichever stream.
std::string kept_results(graft::Mode mode) {
  const auto function = [](Tensor x, Tensor w) { return Tensors{x.mm(w).tanh(), x.sum(1), x}; };
  const auto fast = graft::compile(function, {.mode = mode, .cache = false});
  const at::NoGradGuard no_grad;
  const auto weight = numbers(0, {64, 64});
  std::vector<Tensors> kept, wanted;
  const auto other = c10::cuda::getStreamFromPool();
  for (int call = 0; call < 30; ++call) {
    torch::cuda::synchronize();
    const c10::cuda::CUDAStreamGuard guard(call % 5 == 4 ? other : c10::cuda::getDefaultCUDAStream());
    const auto x = numbers(call, {16, 64});
    auto got = fast(x, weight);
    if (!got[2].is_alias_of(x)) return "an output that is an argument is not";
    if (call % 3 != 1) {  // the others are let go
      kept.push_back(got);
      wanted.push_back(function(x, weight));
    }
    if (kept.size() > 4) {
      kept.erase(kept.begin() + 1);
      wanted.erase(wanted.begin() + 1);
    }
    torch::cuda::synchronize();
    for (size_t i = 0; i < kept.size(); ++i)
      for (size_t k = 0; k < 3; ++k)
        if (!near(kept[i][k], wanted[i][k], 1e-4))
          return "after call " + std::to_string(call) + ", result " + std::to_string(k) + " that was kept";
  }
  return "";
}

/// graft::attend by itself, over sizes that end in the middle of everything.
std::string attend() {
  using Attend = Tensor(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double,
                        at::IntArrayRef);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("graft::attend", "").typed<Attend>();
  struct Sizes {
    int64_t batch, groups, heads, queries, keys, size;
  };
  for (const auto& s : std::vector<Sizes>{{1, 8, 4, 1, 192, 64},
                                          {3, 2, 3, 2, 1, 128},
                                          {2, 1, 5, 3, 777, 32},
                                          {1, 1, 1, 1, 5000, 256},
                                          {32, 8, 4, 1, 130, 64},
                                          {1, 2, 8, 4, 2049, 128},
                                          {2, 3, 1, 1, 65, 80}})
    for (const auto dtype : {at::kHalf, at::kBFloat16})
      for (const int bias : {0, 1, 2}) {
        const auto q = numbers(1, {s.batch, s.queries, s.groups * s.heads, s.size}, dtype).transpose(1, 2);
        const auto k = numbers(2, {s.batch, s.groups, s.keys, s.size}, dtype);
        const auto v = numbers(3, {s.batch, s.keys, s.groups, s.size}, dtype).transpose(1, 2);
        std::optional<Tensor> more;
        if (bias) {
          more = numbers(4, {s.batch, 1, s.queries, s.keys}, bias == 1 ? dtype : at::kFloat);
          more->masked_fill_(more->gt(0.5), -INFINITY);
          more->select(0, 0).select(1, 0).fill_(-INFINITY);  // one that sees nothing
        }
        const auto strides = q.strides().vec();
        const auto got = op.call(q, k, v, more, 0.125, strides);
        const auto wide = [](const Tensor& x) { return x.cpu().to(at::kDouble); };
        std::optional<Tensor> wide_bias;
        if (more) wide_bias = wide(*more);
        const auto want = op.call(wide(q), wide(k), wide(v), wide_bias, 0.125, strides);
        if (got.strides() != at::IntArrayRef(strides)) return "strides";
        if (!at::allclose(wide(got), want, 2e-2, 1e-2))
          return "keys " + std::to_string(s.keys) + ", size " + std::to_string(s.size) + ", bias " +
                 std::to_string(bias) + ": off by " +
                 std::to_string((wide(got) - want).abs().max().item<double>());
      }
  return "";
}

/// graft::float_mm by itself: each side the short one, each matrix along its rows or its columns, sizes that
/// end in the middle of everything and some that there is no code for.
std::string float_mm() {
  using Multiply = Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&, at::ScalarType);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("graft::float_mm", "").typed<Multiply>();
  const std::vector<std::vector<int64_t>> sizes = {
      {2048, 16, 2048}, {37, 5, 520},  {2048, 48, 8192}, {520, 2048, 37}, {16, 2048, 72}, {300, 520, 13},
      {2048, 8192, 16}, {67, 264, 48}, {1, 640, 8},      {131, 17, 1003}, {640, 100, 640}};
  const auto laid = [](uint64_t seed, int64_t rows, int64_t columns, at::ScalarType dtype, bool turned) {
    return turned ? numbers(seed, {columns, rows}, dtype).t() : numbers(seed, {rows, columns}, dtype);
  };
  for (const auto& s : sizes)
    for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat})
      for (int way = 0; way < 16; ++way) {
        const int64_t m = s[0], n = s[1], k = s[2];
        const bool inner = k <= m && k <= n;
        const auto a_type = inner || (m < n && m < k) ? at::kFloat : dtype,
                   b_type = inner || a_type != at::kFloat ? at::kFloat : dtype;
        const auto out_type = inner ? dtype : at::kFloat;
        const auto a = laid(1, m, k, a_type, way & 1), b = laid(2, k, n, b_type, way & 2);
        if ((way & 3) == 1) a[m / 2][k / 3] = INFINITY;  // its row, and nothing else
        std::optional<Tensor> added;                     // columns of something wider
        if (inner && (way & 4)) added = numbers(3, {m, n + 8}, out_type).narrow(1, 8, n);
        if (!inner && (way & 12)) continue;
        const auto x = way & 8 ? a.clone().narrow(0, m / 2, m - m / 2) : a;  // begins elsewhere
        if ((way & 8) && added) added = added->narrow(0, m / 2, m - m / 2);
        const auto got = op.call(x, b, added, out_type);
        const auto wide = [](const Tensor& t) { return t.cpu().to(at::kDouble); };
        auto want = wide(x).mm(wide(b)), bound = wide(x).abs().mm(wide(b).abs());
        if (added) want = want + wide(*added);
        const double share = out_type == at::kFloat ? 1e-5 : out_type == at::kHalf ? 1e-3 : 8e-3;
        // A result in half precision is made of two parts of each number: 2^-16 of what the terms add up to.
        const double of_terms = out_type == at::kFloat ? 1e-5 : 0x1p-16;
        const bool right =
            at::where(want.isfinite(),
                      (wide(got) - want).abs().le(share * want.abs() + of_terms * bound + 1e-30),
                      wide(got).eq(want).logical_or(wide(got).isnan() & want.isnan()))
                .all()
                .item<bool>();
        if (got.scalar_type() != out_type || !got.is_contiguous() || !right)
          return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + ", way " +
                 std::to_string(way) + ": off by " +
                 std::to_string((wide(got) - want).abs().max().item<double>());
      }
  return "";
}

/// graft::low_rank_add by itself: many adapters and few, ranks of all kinds, rows that chose none, some and
/// several, in its own memory and upon what it adds to.
std::string low_rank_add() {
  using Into = Tensor&(const Tensor&, const Tensor&, at::TensorList, at::TensorList, at::TensorList,
                       const Tensor&, at::IntArrayRef, at::IntArrayRef, Tensor&);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("graft::low_rank_add", "out").typed<Into>();
  const std::vector<std::vector<int64_t>> sizes = {// batch, rows of each, in, out, adapters, highest rank
                                                   {8, 128, 2048, 2048, 3, 16}, {8, 128, 2048, 8192, 1, 16},
                                                   {3, 7, 520, 264, 5, 40},     {2, 1, 64, 72, 2, 8},
                                                   {5, 33, 100, 36, 2, 4},      {4, 16, 256, 512, 70, 8},
                                                   {2, 9, 1024, 128, 2, 200}};
  for (const auto& s : sizes)
    for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat})
      for (const bool upon : {false, true}) {
        const int64_t batch = s[0], rows = batch * s[1], in = s[2], out = s[3], count = s[4];
        const auto x = numbers(1, {rows, in}, dtype), y = numbers(2, {rows, out}, dtype);
        auto table = numbers(3, {batch, count + 2}, at::kFloat) > 0.3;
        table[0].fill_(false);
        table[batch - 1].fill_(true);
        Tensors a, b, scaling;
        std::vector<int64_t> slots;
        for (int64_t i = 0; i < count; ++i) {
          const auto rank = i == 0 ? s[5] : 1 + (i * 7) % s[5];
          a.push_back(numbers(10 + i, {rank, in}, at::kFloat));
          b.push_back(numbers(90 + i, {out, rank}, at::kFloat));
          scaling.push_back(at::full({}, 0.25 + static_cast<double>(i % 3), y.options().dtype(at::kFloat)));
          slots.push_back((i * 5 + 1) % (count + 2));
        }
        b.back()[out / 2][0] = INFINITY;  // for those who chose it
        const auto wide = [](const Tensor& t) { return t.cpu().to(at::kDouble); };
        auto want = wide(y), bound = want.abs();
        for (int64_t i = 0; i < count; ++i) {
          const auto mask = table.select(1, slots[i]).cpu().repeat_interleave(s[1]).unsqueeze(1);
          const auto delta = [&](bool absolute) {
            const auto of = [&](const Tensor& t) { return absolute ? wide(t).abs() : wide(t); };
            return at::where(mask, of(x).mm(of(a[i]).t()).mm(of(b[i]).t()) * wide(scaling[i]), 0.0);
          };
          want = want + delta(false);
          bound = bound + delta(true);
        }
        auto got = upon ? y.clone() : at::empty_like(y);
        op.call(upon ? got : y, x, a, b, scaling, table, slots, {}, got);
        const double share = dtype == at::kFloat ? 1e-5 : dtype == at::kHalf ? 2e-3 : 1.6e-2;
        const bool right = at::where(want.isfinite() & bound.isfinite(),
                                     (wide(got) - want).abs().le(share * want.abs() + 2e-5 * bound + 1e-30),
                                     wide(got).eq(want).logical_or(wide(got).isfinite().logical_not()))
                               .all()
                               .item<bool>();
        if (!right)
          return std::to_string(rows) + " x " + std::to_string(in) + " x " + std::to_string(out) +
                 ", adapters " + std::to_string(count) + ", " + at::toString(dtype) + ": off by " +
                 std::to_string((wide(got) - want).nan_to_num(0, 0, 0).abs().max().item<double>());
        // The same for two layers side by side, of which the second has the adapters of the first half.
        const auto beside = numbers(4, {rows, out}, dtype), both = at::cat({y, beside}, 1);
        std::vector<int64_t> places(static_cast<size_t>(count), 0);
        std::fill_n(places.begin(), count / 2, out);
        auto one = at::empty_like(y), other = at::empty_like(y),
             joined = upon ? both.clone() : at::empty_like(both);
        const auto part = [&](const auto& all, int64_t from, int64_t to) {
          return std::vector(all.begin() + from, all.begin() + to);
        };
        const auto half = count / 2;
        op.call(y, x, part(a, half, count), part(b, half, count), part(scaling, half, count), table,
                part(slots, half, count), {}, one);
        if (half)
          op.call(beside, x, part(a, 0, half), part(b, 0, half), part(scaling, 0, half), table,
                  part(slots, 0, half), {}, other);
        else
          other.copy_(beside);
        op.call(upon ? joined : both, x, a, b, scaling, table, slots, places, joined);
        // Fewer adapters at a time have other blocks, which add in another order.
        const double rounding = 4e-5 * at::where(bound.isfinite(), bound, 0.0).max().item<double>();
        if (!at::allclose(joined, at::cat({one, other}, 1), share, rounding, /*equal_nan=*/true))
          return std::to_string(rows) + " x " + std::to_string(out) + ", two layers, adapters " +
                 std::to_string(count) + ", " + at::toString(dtype);
      }
  return "";
}

/// A training step as one program, against the same in eager code: the parameters after some steps.
std::string training_step(graft::Mode mode) {
  std::vector<Tensors> ends;
  for (const bool compiled : {false, true}) {
    torch::manual_seed(0);
    torch::nn::Sequential model(torch::nn::Embedding(50, 32), torch::nn::Linear(32, 64), torch::nn::GELU(),
                                torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})),
                                torch::nn::Linear(64, 50));
    model->to(at::kCUDA);
    auto step = graft::compile_step(
        model.ptr(),
        [model](Tensor ids, Tensor labels) mutable {
          return at::cross_entropy_loss(model->forward(ids).flatten(0, 1), labels.flatten());
        },
        graft::AdamW{.lr = 1e-2},
        {.compile = {.mode = mode,
                     .backend = compiled ? graft::Backend::graft : graft::Backend::eager,
                     .fullgraph = compiled,
                     .cache = false}});
    Tensors end;
    for (int i = 0; i < 10; ++i) {
      const auto ids = (numbers(i, {4, 9}) * 100).abs().to(at::kLong).remainder(50);
      end.push_back(step(ids, ids).clone());
    }
    for (const auto& parameter : model->parameters()) end.push_back(parameter.detach());
    ends.push_back(end);
  }
  for (size_t i = 0; i < ends[0].size(); ++i)
    if (!near(ends[1][i], ends[0][i], i < 10 ? 1e-3 : 2e-2)) return "value " + std::to_string(i);
  return "";
}

}  // namespace

/// cuda_check [PART_OF_A_NAME [TIMES]]: those checks whose names contain it, so many times.
int main(int argc, char** argv) {
  if (!torch::cuda::is_available()) {
    std::cerr << "there is no GPU\n";
    return 3;
  }
  const std::string asked_for = argc > 1 ? argv[1] : "";
  const int times = argc > 2 ? std::stoi(argv[2]) : 1;
  int wrong = 0;
  const auto check = [&](const std::string& name, const std::function<std::string()>& run) {
    std::string failure;
    try {
      failure = run();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    std::cout << (failure.empty() ? "ok    " : "WRONG ") << name
              << (failure.empty() ? "" : ": " + failure.substr(0, 1500)) << std::endl;
    wrong += !failure.empty();
  };
  const auto report = [&](const std::string& name, const std::function<std::string()>& run) {
    for (int i = 0; i < times && name.find(asked_for) != std::string::npos; ++i) check(name, run);
  };
  report("attention of few queries by itself", attend);
  report("products with a short side by themselves", float_mm);
  report("adapters by themselves", low_rank_add);
  for (const auto mode : modes) {
    for (const auto& each : cases()) {
      report(each.name + name_of(mode), [&] { return failure_of(each, mode); });
      if (std::string(each.name) != "changed in place")
        report(each.name + (", gradients" + name_of(mode)), [&] { return gradient_failure_of(each, mode); });
    }
    report("index out of range" + name_of(mode), [&] { return out_of_range(mode); });
    report("rows in place" + name_of(mode), [&] { return rows_in_place(mode); });
    report("training step" + name_of(mode), [&] { return training_step(mode); });
    report("results that are kept" + name_of(mode), [&] { return kept_results(mode); });
  }
  return wrong ? 1 : 0;
}
