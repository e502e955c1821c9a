// Functions on a GPU, compiled, against the same in eager code: results, gradients, inputs that are changed,
// indices out of range. Exit status: 0 all are right, 1 some are not, 3 there is no GPU.
#include <torch/torch.h>

#include <functional>
#include <iostream>

#include "graft/compile.h"
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
      {"changed in place",
       [](Tensors t) {
         t[0].mul_(2).add_(1);
         return Tensors{t[0].sum(1)};
       },
       one({20, 256})},
  };
  return all;
}

bool near(const Tensor& got, const Tensor& want, double tolerance) {
  if (got.sizes() != want.sizes() || got.scalar_type() != want.scalar_type() || got.device() != want.device())
    return false;
  return at::allclose(got.to(at::kDouble), want.to(at::kDouble), tolerance, tolerance);
}

std::string failure_of(const Case& each) {
  const auto fast = graft::compile([&](Tensors t) { return each.function(std::move(t)); },
                                   {.fullgraph = true, .cache = false});
  for (int call = 0; call < 5; ++call) {
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

std::string gradient_failure_of(const Case& each) {
  const auto fast = graft::compile([&](Tensors t) { return each.function(std::move(t)); }, {.cache = false});
  for (int call = 0; call < 4; ++call) {
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

std::string out_of_range() {
  const auto fast = graft::compile([](Tensor table, Tensor ids) { return at::embedding(table, ids) + 1; },
                                   {.cache = false});
  const at::NoGradGuard no_grad;
  const auto table = numbers(0, {10, 4}), good = at::tensor({1, 9}, at::kLong).to(at::kCUDA);
  for (int i = 0; i < 3; ++i)
    fast(table.clone(), good.clone());  // other tensors: the call below is not watched
  try {
    fast(table, at::tensor({1, 10}, at::kLong).to(at::kCUDA));
    return "no error";
  } catch (const graft::Error& error) {
    if (std::string(error.what()).find("out of range") == std::string::npos) return error.what();
  }
  return near(fast(table, good), at::embedding(table, good) + 1, 1e-6) ? "" : "the next call is wrong";
}

}  // namespace

int main() {
  if (!torch::cuda::is_available()) {
    std::cerr << "there is no GPU\n";
    return 3;
  }
  int wrong = 0;
  const auto report = [&](const std::string& name, const std::function<std::string()>& run) {
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
  for (const auto& each : cases()) {
    report(each.name, [&] { return failure_of(each); });
    if (std::string(each.name) != "changed in place")
      report(std::string(each.name) + ", gradients", [&] { return gradient_failure_of(each); });
  }
  report("index out of range", out_of_range);
  return wrong ? 1 : 0;
}
