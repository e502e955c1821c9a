// What compile() and compile_step() take: callables and modules with signatures of all kinds, and the types
// of their arguments.
#include <gtest/gtest.h>
#include <torch/data/example.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <functional>

#include "compiled_check.h"
#include "graft/compile.h"
#include "graft/compile_step.h"

namespace graft {
namespace {

using at::Tensor;
using testing_tools::differs;

Tensor numbers(int i) {
  at::manual_seed(i);
  return at::randn({3, 4});
}

const CompileOptions whole = {.fullgraph = true};

struct WithDefaults : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(4, 4))};
  Tensor forward(const Tensor& x, double factor = 2, const std::optional<Tensor>& added = std::nullopt) {
    const auto y = layer(x) * factor;
    return added ? y + *added : y;
  }
};

TEST(Signatures, DefaultArgumentsOfForward) {
  const auto module = std::make_shared<WithDefaults>();
  const auto fast = compile(module, whole);
  for (int i = 0; i < 4; ++i) {
    const auto x = numbers(i);
    EXPECT_EQ(differs(fast(x), module->forward(x)), "");
    EXPECT_EQ(differs(fast(x, 3), module->forward(x, 3)), "");
    EXPECT_EQ(differs(fast(x, 3, x), module->forward(x, 3, x)), "");
  }
  torch::nn::MultiheadAttention attention(4, 2);
  const auto attend = compile(attention, whole);
  const auto q = at::randn({3, 2, 4});
  const auto [out, weights] = attend(q, q, q);
  EXPECT_EQ(differs(out, std::get<0>(attention(q, q, q))), "");
  EXPECT_TRUE(weights.defined());
  EXPECT_NE(attend.explain(q, q, q).find("graphs: 1"), std::string::npos);
}

struct Overloaded : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(4, 4))};
  Tensor forward(const Tensor& x) { return layer(x); }
  std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& y) { return {layer(x) * y, y - 1}; }
};
struct OverloadedWithoutOneTensor : torch::nn::Module {
  Tensor forward(const Tensor& x, const Tensor& y) { return x * y; }
  Tensor forward(const Tensor& x, int64_t times) { return x * times; }
};

TEST(Signatures, OverloadedForward) {
  const auto module = std::make_shared<Overloaded>();
  const auto fast = compile(module, whole);
  const auto other = std::make_shared<OverloadedWithoutOneTensor>();
  const auto fast_other = compile(other, whole);
  const Compiled<Tensor(const Tensor&)> of_one = fast;  // NOLINT(cppcoreguidelines-slicing)
  reset();
  for (int i = 0; i < 4; ++i) {
    const auto x = numbers(i), y = numbers(i + 9);
    EXPECT_EQ(differs(fast(x), module->forward(x)), "");
    EXPECT_EQ(differs(of_one(x), module->forward(x)), "");
    const auto [first, second] = fast(x, y);
    EXPECT_EQ(differs(first, module->forward(x, y).first), "");
    EXPECT_EQ(differs(second, y - 1), "");
    EXPECT_EQ(differs(fast_other(x, y), x * y), "");
    EXPECT_EQ(differs(fast_other(x, int64_t{3}), x * 3), "");
  }
  EXPECT_EQ(counters().graphs, 4);
}

TEST(Signatures, SequentialAndAnyModule) {
  torch::nn::Sequential layers(torch::nn::Linear(4, 6), torch::nn::ReLU(), torch::nn::Linear(6, 2));
  torch::nn::AnyModule any(torch::nn::Linear(4, 2));
  const auto fast = compile(layers, whole);
  const auto fast_any = compile(any, whole);
  for (int i = 0; i < 4; ++i) {
    const auto x = numbers(i);
    EXPECT_EQ(differs(fast(x), layers->forward(x)), "");
    EXPECT_EQ(differs(fast_any(x), any.forward(x)), "");
  }
  // Its weights are inputs, not constants.
  const at::NoGradGuard no_grad;
  any.ptr()->parameters()[0].mul_(2);
  EXPECT_EQ(differs(fast_any(numbers(0)), any.forward(numbers(0))), "");
}

TEST(Signatures, GenericCallables) {
  const auto generic = compile([](const auto& x, auto factor) { return x * factor; }, whole);
  const auto bound =
      compile(std::bind_front([](double factor, const Tensor& x) { return x * factor; }, 3.0), whole);
  reset();
  for (int i = 0; i < 4; ++i) {
    const auto x = numbers(i);
    EXPECT_EQ(differs(generic(x, 2), x * 2), "");
    EXPECT_EQ(differs(generic(x, x), x * x), "");
    EXPECT_EQ(differs(bound(x), x * 3), "");
  }
  EXPECT_EQ(counters().graphs, 3);
  EXPECT_NE(generic.explain(numbers(0), 2).find("graphs: 1"), std::string::npos);
}

TEST(Signatures, ModuleThatIsAVariable) {
  WithDefaults module;
  const auto fast = compile(module, whole);
  EXPECT_EQ(differs(fast(numbers(0)), module.forward(numbers(0))), "");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(differs(fast(numbers(i)), module.forward(numbers(i))), "");
  const at::NoGradGuard no_grad;
  module.layer->weight.mul_(3);
  EXPECT_EQ(differs(fast(numbers(1)), module.forward(numbers(1))), "");
}

TEST(Signatures, KindsOfArguments) {
  using Map = std::unordered_map<std::string, Tensor>;
  const auto by_name = compile([](Map batch) { return Map{{"sum", batch.at("a") + batch.at("b")}}; }, whole);
  const auto sized = compile([](const Tensor& x, at::IntArrayRef sizes) { return x.view(sizes) + 1; }, whole);
  const auto placed = compile([](const Tensor& x, at::Device device) { return x.to(device) * 2; }, whole);
  using Example = torch::data::Example<>;
  const auto of_example = compile([](const Example& e) { return Example(e.data * 2, e.target + 1); }, whole);
  using Unlabelled = torch::data::Example<Tensor, void>;
  const auto of_data = compile([](const Unlabelled& e) { return e.data * 2; }, whole);
  reset();
  for (int i = 0; i < 4; ++i) {
    const auto x = numbers(i), y = numbers(i + 9);
    const auto ordered = i % 2 ? Map{{"a", x}, {"b", y}, {"c", x}} : Map{{"c", x}, {"b", y}, {"a", x}};
    EXPECT_EQ(differs(by_name(ordered).at("sum"), x + y), "");
    EXPECT_EQ(differs(sized(x, {12}), x.view({12}) + 1), "");
    EXPECT_EQ(differs(sized(x, {2, 6}), x.view({2, 6}) + 1), "");
    EXPECT_EQ(differs(placed(x, at::kCPU), x * 2), "");
    const auto made = of_example({x, y});
    EXPECT_EQ(differs(made.data, x * 2), "");
    EXPECT_EQ(differs(made.target, y + 1), "");
    EXPECT_EQ(differs(of_data(Unlabelled(x)), x * 2), "");
  }
  EXPECT_EQ(counters().graphs, 6);
}

TEST(Signatures, WhatIsPutIntoAnUnorderedMap) {
  using Map = std::unordered_map<std::string, Tensor>;
  const auto fast = compile([](Map& sums, const Tensor& x) { sums["a"] = sums["a"] + x; });
  Map sums{{"a", at::zeros({3, 4})}};
  const auto& element = sums.at("a");
  for (int i = 0; i < 4; ++i) fast(sums, at::ones({3, 4}));
  EXPECT_EQ(differs(element, at::full({3, 4}, 4.0)), "");
}

TEST(Signatures, OptionsByName) {
  const CompileOptions options{
      .mode = "reduce-overhead", .backend = "inductor", .dynamic = "off", .replay = "every"};
  EXPECT_TRUE(options.mode == Mode::reduce_overhead);
  EXPECT_TRUE(options.backend == Backend::graft);
  EXPECT_TRUE(options.dynamic == Dynamic::off);
  EXPECT_TRUE(options.replay == Replay::every);
  EXPECT_TRUE((CompileOptions{.mode = std::string("max-autotune")}.mode == Mode::max_autotune));
  try {
    FAIL() << static_cast<int>(static_cast<Mode>(CompileOptions{.mode = "fast"}.mode));
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "[compile] mode \"fast\" is unknown; known: default, reduce-overhead, max-autotune");
  }
}

template <class Optimizer, class Options>
void expect_same_training(const OptimizerConfig& config, const Options& options) {
  torch::manual_seed(0);
  const torch::nn::Linear ours(4, 2);
  const torch::nn::Linear theirs(4, 2);
  {
    const at::NoGradGuard no_grad;
    theirs->weight.copy_(ours->weight);
    theirs->bias.copy_(ours->bias);
  }
  const auto loss = [](torch::nn::Linear m, const Tensor& x) { return m->forward(x).square().mean(); };
  auto step = compile_step(ours, [&](const Tensor& x) { return loss(ours, x); }, config,
                           {.compile = {.fullgraph = true}});
  Optimizer optimizer(theirs->parameters(), options);
  for (int i = 0; i < 12; ++i) {
    const auto x = numbers(i);
    optimizer.zero_grad();
    const auto want = loss(theirs, x);
    want.backward();
    optimizer.step();
    EXPECT_EQ(differs(step(x), want.detach()), "") << i;
    EXPECT_EQ(differs(ours->weight, theirs->weight), "") << i;
    EXPECT_EQ(differs(ours->bias, theirs->bias), "") << i;
  }
}

TEST(Signatures, OptimizersOfCompileStep) {
  using torch::optim::AdamOptions;
  using torch::optim::SGDOptions;
  expect_same_training<torch::optim::Adam>(Adam{.lr = 0.05}, AdamOptions(0.05));
  expect_same_training<torch::optim::Adam>(
      Adam{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1},
      AdamOptions(0.05).betas({0.8, 0.95}).eps(1e-6).weight_decay(0.1));
  expect_same_training<torch::optim::SGD>(SGD{.lr = 0.1, .momentum = 0.9}, SGDOptions(0.1).momentum(0.9));
  expect_same_training<torch::optim::SGD>(
      SGD{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.05},
      SGDOptions(0.1).momentum(0.9).dampening(0.3).weight_decay(0.05));
  expect_same_training<torch::optim::SGD>(SGD{.lr = 0.1, .momentum = 0.9, .nesterov = true},
                                          SGDOptions(0.1).momentum(0.9).nesterov(true));
  torch::nn::Linear layer(4, 2);
  EXPECT_THROW(compile_step(
                   layer, [&](const Tensor& x) { return layer(x).sum(); }, SGD{.nesterov = true}),
               UsageError);
  auto variable = torch::nn::LinearImpl(4, 2);
  auto step =
      compile_step(variable, [&](const Tensor& x) { return variable.forward(x).square().sum(); }, Adam{});
  EXPECT_GT(step(numbers(0)).item<float>(), step(numbers(0)).item<float>());
}

/// Numbers among the arguments: operands become inputs, what decides the way stays a guard or is seen by a
/// replay.
void expect_right_with_numbers(bool gradients) {
  const at::AutoGradMode mode(gradients);
  const auto expect_right = [&](auto function, int64_t most_graphs) {
    const std::function<Tensor(Tensor, double, int64_t)> typed = function;
    const auto fast = compile(typed);
    reset();
    at::manual_seed(5);
    for (int call = 0; call < 80 && !testing::Test::HasFailure(); ++call) {
      const double number = call < 4 ? 0.5 : 0.25 + at::rand({}).item<double>();
      const int64_t whole = call < 6 ? 2 : 1 + call % 4;
      const auto x = at::randn({5, 4});
      auto a = x.clone().set_requires_grad(gradients), b = x.clone().set_requires_grad(gradients);
      const auto want = function(a, number, whole), got = fast(b, number, whole);
      EXPECT_EQ(differs(got, want), "") << call;
      if (!gradients) continue;
      // Not the plain sum, whose gradient through a softmax is rounding alone.
      want.square().sum().backward();
      got.square().sum().backward();
      EXPECT_EQ(differs(b.grad(), a.grad()), "") << call;
    }
    EXPECT_LE(counters().graphs, most_graphs);
  };
  expect_right([](Tensor x, double t, int64_t n) { return (x / t).softmax(-1) * n - t; }, 3);
  expect_right([](Tensor x, double t, int64_t) { return t > 0.5 ? (x * t).relu() : x.tanh() + t; }, 6);
  expect_right([](Tensor x, double, int64_t n) { return x.narrow(0, 1, n).exp(); }, 8);
  expect_right([](Tensor x, double, int64_t) { return x.exp() * 3; }, 1);
  expect_right([](Tensor x, double t, int64_t n) { return x.sum() * t + x.select(0, n).mean(); }, 8);
  // In parts the code runs in every call.
  expect_right(
      [](Tensor x, double t, int64_t n) {
        const auto y = x * t;
        return y.sum().item<double>() > 0 ? y.exp() + n : y.tanh() - t;
      },
      12);
}

TEST(Signatures, NumbersThatDifferFromCallToCall) {
  for (const bool gradients : {false, true}) expect_right_with_numbers(gradients);
}

TEST(Signatures, ANumberThatIsOnlyGivenBack) {
  const at::NoGradGuard no_grad;
  const auto fast = compile([](Tensor x, double t) { return std::pair(x.exp(), t * 2); });
  for (int call = 0; call < 20; ++call) {
    const auto x = at::randn({3});
    const auto [y, twice] = fast(x, call);
    EXPECT_EQ(twice, 2.0 * call);
    EXPECT_EQ(differs(y, x.exp()), "") << call;
  }
}

}  // namespace
}  // namespace graft
