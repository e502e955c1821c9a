// compile_step(): the same training as torch's own optimizers, over every backend.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "graft/compile_step.h"
#include "runtime/memory_meter.h"

namespace graft {
namespace {

using at::Tensor;

struct Net : torch::nn::Module {
  torch::nn::Linear a{register_module("a", torch::nn::Linear(6, 17))},
      b{register_module("b", torch::nn::Linear(17, 3))};
  Tensor loss(const Tensor& x, const Tensor& y) { return (b(at::gelu(a(x))) - y).square().mean(); }
  Tensor forward(const Tensor& x) { return b(at::gelu(a(x))); }
};

struct Case {
  const char* name;
  OptimizerConfig config;
  double max_norm;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<Tensor>)> theirs;
};

std::vector<Case> cases() {
  using namespace torch::optim;
  return {
      {"sgd", SGD{.lr = 0.1}, 0,
       [](auto p) { return std::make_unique<torch::optim::SGD>(p, SGDOptions(0.1)); }},
      {"momentum", SGD{.lr = 0.05, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01}, 0,
       [](auto p) {
         return std::make_unique<torch::optim::SGD>(
             p, SGDOptions(0.05).momentum(0.9).dampening(0.1).weight_decay(0.01));
       }},
      {"nesterov", SGD{.lr = 0.05, .momentum = 0.9, .nesterov = true}, 0.5,
       [](auto p) {
         return std::make_unique<torch::optim::SGD>(p, SGDOptions(0.05).momentum(0.9).nesterov(true));
       }},
      {"adamw", AdamW{.lr = 0.01}, 0,
       [](auto p) { return std::make_unique<torch::optim::AdamW>(p, AdamWOptions(0.01)); }},
      {"adamw_clipped", AdamW{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1}, 0.1,
       [](auto p) {
         return std::make_unique<torch::optim::AdamW>(
             p, AdamWOptions(0.02).betas(std::make_tuple(0.8, 0.95)).eps(1e-6).weight_decay(0.1));
       }},
  };
}

class CompileStep : public testing::TestWithParam<Backend> {};

TEST_P(CompileStep, TrainsAsTorchDoes) {
  for (const auto& c : cases()) {
    SCOPED_TRACE(c.name);
    reset();
    torch::manual_seed(1);
    const auto mine = std::make_shared<Net>();
    const auto theirs = std::dynamic_pointer_cast<Net>(std::make_shared<Net>());
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < mine->parameters().size(); ++i)
        theirs->parameters()[i].copy_(mine->parameters()[i]);
    }
    auto step = compile_step(
        mine, [mine](const Tensor& x, const Tensor& y) { return mine->loss(x, y); }, c.config,
        {.max_grad_norm = c.max_norm, .compile = {.backend = GetParam(), .fullgraph = true, .cache = false}});
    auto optimizer = c.theirs(theirs->parameters());
    for (int i = 0; i < 8; ++i) {
      const auto x = at::randn({5, 6}), y = at::randn({5, 3});
      const auto got = step(x, y);
      const auto want = theirs->loss(x, y);
      optimizer->zero_grad();
      want.backward();
      if (c.max_norm > 0) {
        const double norm = torch::nn::utils::clip_grad_norm_(theirs->parameters(), c.max_norm);
        EXPECT_NEAR(step.grad_norm().item<double>(), norm, 1e-5 * norm);
      }
      optimizer->step();
      EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-5);
      if (i == 4) {
        step.set_lr(step.lr() / 2);
        for (auto& group : optimizer->param_groups()) group.options().set_lr(group.options().get_lr() / 2);
      }
    }
    for (size_t i = 0; i < mine->parameters().size(); ++i)
      EXPECT_TRUE(at::allclose(mine->parameters()[i], theirs->parameters()[i], 1e-4, 1e-6))
          << mine->parameters()[i] << theirs->parameters()[i];
    EXPECT_EQ(counters().graphs, GetParam() == Backend::eager ? 0 : 1);
    EXPECT_EQ(counters().recompiles, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, CompileStep,
                         testing::Values(Backend::eager, Backend::aot_eager, Backend::graft),
                         [](const auto& info) {
                           return info.param == Backend::graft   ? "graft"
                                  : info.param == Backend::eager ? "eager"
                                                                 : "aot_eager";
                         });

struct Deep : torch::nn::Module {
  std::vector<torch::nn::Linear> layers;
  explicit Deep(int64_t frozen) {
    for (int64_t i = 0; i < 6; ++i) {
      layers.push_back(register_module("l" + std::to_string(i), torch::nn::Linear(32, 32)));
      for (auto& parameter : layers.back()->parameters()) parameter.set_requires_grad(i >= frozen);
    }
  }
  Tensor loss(Tensor x) {
    for (auto& layer : layers) x = x + at::silu(layer(x)) * at::sigmoid(x);
    return x.square().mean();
  }
};

TEST(CompileStepMemory, HoldsLessThanEager) {
  for (const int64_t frozen : {0, 3}) {
    SCOPED_TRACE(frozen);
    const auto x = at::rand({512, 32});
    const auto peak = [&](Backend backend) {
      const auto net = std::make_shared<Deep>(frozen);
      auto step = compile_step(net, [net](const Tensor& in) { return net->loss(in); }, AdamW{},
                               {.max_grad_norm = 1, .compile = {.backend = backend, .cache = false}});
      // The arena stays between calls: a meter sees all of it only from the start.
      MemoryMeter meter;
      step(x), step(x), step(x);
      meter.start_again();
      step(x);
      return meter.peak();
    };
    EXPECT_LT(peak(Backend::graft), peak(Backend::eager));
  }
}

TEST(CompileStepMemory, ForwardAndBackwardHoldLessThanEager) {
  const auto x = at::rand({512, 32});
  const auto peak = [&](Backend backend) {
    const auto net = std::make_shared<Deep>(3);
    const auto loss = compile([net](const Tensor& in) { return net->loss(in); },
                              {.backend = backend, .cache = false}, {net});
    const auto call = [&] {
      loss(x).backward();
      net->zero_grad();
    };
    MemoryMeter meter;
    call(), call(), call();
    meter.start_again();
    call();
    return meter.peak();
  };
  EXPECT_LT(peak(Backend::graft), peak(Backend::eager));
}

TEST(CompileStepErrors, NothingToTrainAndNoScalar) {
  const auto net = std::make_shared<Net>();
  const auto loss = [net](const Tensor& x) { return net->forward(x); };
  auto step = compile_step(net, loss, AdamW{});
  EXPECT_THROW(step(at::ones({2, 6})), UsageError);
  for (auto& p : net->parameters()) p.set_requires_grad(false);
  EXPECT_THROW(compile_step(net, loss, AdamW{}), UsageError);
}

}  // namespace
}  // namespace graft
