// Code that sets a random generator back and draws the same numbers again, as a block does that is computed
// again for the backward pass: compiled code draws them once.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "graft/compile.h"
#include "graft/compile_step.h"
#include "graft/error.h"
#include "nn/checkpointing.h"

namespace graft {
namespace {

using at::Tensor;

at::Generator host() { return at::globalContext().defaultGenerator(at::kCPU); }

/// From the second on the generator is not as its seed leaves it.
void start(int call) {
  at::manual_seed(static_cast<uint64_t>(call));
  if (call > 0) at::rand({3});
}

void expect_same_calls(const std::function<Tensor(const Tensor&)>& function, const CompileOptions& options) {
  const at::NoGradGuard no_grad;
  const auto fast = compile(function, options);
  for (int call = 0; call < 8; ++call) {
    const auto x = at::randn({4, 3});
    start(call);
    const auto want = function(x), after = at::rand({2});
    start(call);
    EXPECT_TRUE(at::allclose(fast(x), want)) << call;
    EXPECT_TRUE(at::equal(at::rand({2}), after)) << call;
  }
}

TEST(SetBackGenerators, DrawTheSameNumbersAgain) {
  const auto function = [](const Tensor& x) {
    at::rand({2});
    const auto before = host().get_state();
    const auto a = at::dropout(x, 0.5, true) + at::randn({4, 3});
    const auto after = host().get_state();
    auto generator = host();
    generator.set_state(before);
    const auto b = at::dropout(x * 2, 0.5, true) + at::randn({4, 3});
    generator.set_state(after);
    return a * b + at::rand({3});
  };
  const int64_t breaks = counters().graph_breaks;
  expect_same_calls(function, {.fullgraph = true});
  EXPECT_EQ(counters().graph_breaks, breaks);
}

// In each of these the code draws what no program would that draws once.
TEST(SetBackGenerators, OtherNumbersAreABreak) {
  const auto again = [](const Tensor& x, auto draw, bool restores) {
    at::rand({2});
    auto generator = host();
    const auto before = generator.get_state();
    const auto a = at::dropout(x, 0.5, true) + at::randn({4, 3});
    const auto after = generator.get_state();
    generator.set_state(before);
    const Tensor b = draw(x);
    if (restores) generator.set_state(after);
    return a + b;
  };
  const auto same = [](const Tensor& x) { return at::dropout(x, 0.5, true); };
  const std::vector<std::function<Tensor(const Tensor&)>> functions = {
      [&](const Tensor& x) { return again(x, same, false); },
      [&](const Tensor& x) {
        return again(x, [](const Tensor& t) { return at::dropout(t, 0.3, true); }, true);
      },
      [&](const Tensor& x) { return again(x, [](const Tensor& t) { return t + at::rand({4, 3}); }, true); },
      [&](const Tensor& x) {
        return again(x, [](const Tensor& t) { return at::dropout(t.t(), 0.5, true).t(); }, true);
      },
      [&](const Tensor& x) {
        return again(x, [](const Tensor& t) { return t + at::rand({2, 4, 3})[1]; }, true);
      }};
  for (size_t i = 0; i < functions.size(); ++i) {
    SCOPED_TRACE(i);
    for (const bool split : {false, true}) expect_same_calls(functions[i], {.split = split});
    start(1);
    EXPECT_THROW(compile(functions[i], {.fullgraph = true})(at::ones({4, 3})), Error);
  }
}

/// Blocks with dropout, each computed again for its gradients or not.
struct Blocks : torch::nn::Module {
  explicit Blocks(bool again) : computed_again(again) {
    for (int i = 0; i < 3; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(6, 6)));
  }
  Tensor forward(Tensor x) {
    for (auto& layer : layers) {
      auto block = [layer](const Tensor& in) mutable {
        return in + at::dropout(at::dropout(layer(in), 0.2, true).tanh(), 0.5, true);
      };
      x = computed_again ? nn::checkpointed(*layer, block, x) : block(x);
    }
    return x;
  }
  bool computed_again;
  std::vector<torch::nn::Linear> layers;
};

std::pair<std::shared_ptr<Blocks>, std::shared_ptr<Blocks>> alike(bool mine_again, bool theirs_again) {
  const auto mine = std::make_shared<Blocks>(mine_again), theirs = std::make_shared<Blocks>(theirs_again);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < mine->parameters().size(); ++i) theirs->parameters()[i].copy_(mine->parameters()[i]);
  return {mine, theirs};
}

class SetBackForBackward : public testing::TestWithParam<Backend> {};

// Of one shape and another, from a fresh generator and one that has drawn.
TEST_P(SetBackForBackward, BlocksThatAreComputedAgain) {
  torch::manual_seed(2);
  const auto [mine, theirs] = alike(true, false);
  const auto fast = compile(mine, {.backend = GetParam(), .fullgraph = true, .cache = false});
  for (int call = 0; call < 8; ++call) {
    SCOPED_TRACE(call);
    const auto x = at::randn({call % 3 == 2 ? 5 : 4, 6});
    for (const auto& model : {mine, theirs}) model->zero_grad();
    start(call);
    theirs->forward(x).square().mean().backward();
    const auto after = at::rand({2});
    start(call);
    fast(x).square().mean().backward();
    EXPECT_TRUE(at::equal(at::rand({2}), after));
    for (size_t i = 0; i < mine->parameters().size(); ++i)
      EXPECT_TRUE(at::allclose(mine->parameters()[i].grad(), theirs->parameters()[i].grad(), 1e-4, 1e-6))
          << i;
  }
}

TEST_P(SetBackForBackward, StepsOverBlocksThatAreComputedAgain) {
  torch::manual_seed(2);
  const auto [mine, theirs] = alike(true, false);
  const CompileOptions options{.backend = GetParam(), .fullgraph = true, .cache = false};
  const auto steps_of = [&](const std::shared_ptr<Blocks>& model) {
    return compile_step(model, [model](const Tensor& x) { return model->forward(x).square().mean(); },
                        SGD{.lr = 0.3}, {.compile = options});
  };
  auto step = steps_of(mine), plain = steps_of(theirs);
  for (int call = 0; call < 8; ++call) {
    const auto x = at::randn({call % 3 == 2 ? 5 : 4, 6});
    start(call);
    const auto want = plain(x);
    start(call);
    EXPECT_TRUE(at::allclose(step(x), want, 1e-4, 1e-6)) << call;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SetBackForBackward,
                         testing::Values(Backend::eager, Backend::aot_eager, Backend::graft));

}  // namespace
}  // namespace graft
