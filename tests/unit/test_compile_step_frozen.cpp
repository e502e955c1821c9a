// Parameters that are frozen and unfrozen between steps: the same training as torch's own optimizers.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "graft/compile_step.h"

namespace graft {
namespace {

using at::Tensor;

struct Net : torch::nn::Module {
  torch::nn::Linear a{register_module("a", torch::nn::Linear(6, 17))},
      b{register_module("b", torch::nn::Linear(17, 17))}, c{register_module("c", torch::nn::Linear(17, 3))};
  bool skips = false;  // b
  Tensor loss(const Tensor& x, const Tensor& y) {
    const auto h = at::gelu(a(x));
    return (c(skips ? h : b(h)) - y).square().mean();
  }
  void freeze(const std::string& part, bool frozen) {
    for (auto& parameter : named_children()[part]->parameters()) parameter.set_requires_grad(!frozen);
  }
};

struct Case {
  const char* name;
  OptimizerConfig config;
  double max_norm;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<Tensor>)> theirs;
};

std::vector<Case> cases() {
  using namespace torch::optim;
  return {{"sgd", graft::SGD{.lr = 0.1}, 0,
           [](auto p) { return std::make_unique<torch::optim::SGD>(p, SGDOptions(0.1)); }},
          {"dampened momentum, clipped",
           graft::SGD{.lr = 0.05, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01}, 0.5,
           [](auto p) {
             return std::make_unique<torch::optim::SGD>(
                 p, SGDOptions(0.05).momentum(0.9).dampening(0.5).weight_decay(0.01));
           }},
          {"adamw", graft::AdamW{.lr = 0.02}, 0,
           [](auto p) { return std::make_unique<torch::optim::AdamW>(p, AdamWOptions(0.02)); }},
          {"adamw, clipped", graft::AdamW{.lr = 0.02, .weight_decay = 0.1}, 0.1, [](auto p) {
             return std::make_unique<torch::optim::AdamW>(p, AdamWOptions(0.02).weight_decay(0.1));
           }}};
}

/// Two nets with the same weights, one trained by compile_step() and one by hand.
struct Race {
  std::shared_ptr<Net> mine = std::make_shared<Net>(), theirs = std::make_shared<Net>();
  Race() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < mine->parameters().size(); ++i)
      theirs->parameters()[i].copy_(mine->parameters()[i]);
  }
  void both(const std::function<void(Net&)>& change) { change(*mine), change(*theirs); }

  template <class Step>
  void run(const Case& c, Step& step, torch::optim::Optimizer& optimizer, int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto x = at::randn({5, 6}), y = at::randn({5, 3});
      const auto got = step(x, y), want = theirs->loss(x, y);
      optimizer.zero_grad();
      want.backward();
      if (c.max_norm > 0) torch::nn::utils::clip_grad_norm_(theirs->parameters(), c.max_norm);
      optimizer.step();
      EXPECT_NEAR(got.template item<double>(), want.item<double>(), 1e-5);
    }
    for (const auto& item : mine->named_parameters())
      EXPECT_TRUE(at::allclose(item.value(), theirs->named_parameters()[item.key()], 1e-4, 1e-5))
          << item.key();
  }
};

class CompileStepFrozen : public testing::TestWithParam<Backend> {};

TEST_P(CompileStepFrozen, TrainsAsTorchDoesWhatIsNotFrozen) {
  for (const auto& c : cases()) {
    SCOPED_TRACE(c.name);
    reset();
    torch::manual_seed(1);
    Race race;
    race.both([](Net& net) { net.freeze("c", true); });  // from the start
    auto step = compile_step(
        race.mine, [net = race.mine](const Tensor& x, const Tensor& y) { return net->loss(x, y); }, c.config,
        {.max_grad_norm = c.max_norm, .compile = {.backend = GetParam(), .fullgraph = true}});
    const auto optimizer = c.theirs(race.theirs->parameters());
    race.run(c, step, *optimizer, 3);
    race.both([](Net& net) { net.freeze("a", true); });
    race.run(c, step, *optimizer, 3);
    race.both([](Net& net) { net.freeze("a", false), net.freeze("b", true); });
    race.run(c, step, *optimizer, 3);
    race.both([](Net& net) { net.freeze("c", false); });
    race.run(c, step, *optimizer, 3);
    race.both([](Net& net) { net.freeze("b", false); });
    race.run(c, step, *optimizer, 3);
    const auto graphs = counters().graphs;
    race.run(c, step, *optimizer, 3);
    EXPECT_EQ(counters().graphs, graphs) << "the same parameters are the same program";
  }
}

TEST_P(CompileStepFrozen, AParameterThatTheLossLeavesOutDoesNoStep) {
  for (const auto& c : cases()) {
    SCOPED_TRACE(c.name);
    torch::manual_seed(2);
    Race race;
    // Which of them it is comes as an argument: another value is another program.
    auto step = compile_step(
        race.mine,
        [net = race.mine](const Tensor& x, const Tensor& y, bool skips) {
          net->skips = skips;
          return net->loss(x, y);
        },
        c.config, {.max_grad_norm = c.max_norm, .compile = {.backend = GetParam(), .fullgraph = true}});
    const auto optimizer = c.theirs(race.theirs->parameters());
    for (const bool skips : {true, true, false, false, true, false}) {
      race.theirs->skips = skips;
      const auto one = [&](const Tensor& x, const Tensor& y) { return step(x, y, skips); };
      race.run(c, one, *optimizer, 2);
    }
  }
}

TEST_P(CompileStepFrozen, AParameterThatIsReplacedIsTrainedAfresh) {
  torch::manual_seed(3);
  const auto net = std::make_shared<Net>();
  auto step = compile_step(net, [net](const Tensor& x, const Tensor& y) { return net->loss(x, y); },
                           AdamW{.lr = 0.01}, {.compile = {.backend = GetParam(), .fullgraph = true}});
  const auto x = at::randn({5, 6}), y = at::randn({5, 3});
  for (int i = 0; i < 3; ++i) step(x, y);
  const auto count = step.state().size();
  net->replace_module("b", std::make_shared<torch::nn::LinearImpl>(17, 17));
  net->b = std::dynamic_pointer_cast<torch::nn::LinearImpl>(net->named_children()["b"]);
  const auto before = net->b->weight.detach().clone();
  for (int i = 0; i < 3; ++i) step(x, y);
  EXPECT_FALSE(at::equal(net->b->weight, before));
  EXPECT_EQ(step.state().size(), count);
  for (const auto& [name, tensor] : step.state())
    if (name.starts_with("step."))
      EXPECT_EQ(tensor.item<int64_t>(), name.starts_with("step.b.") ? 3 : 6) << name;
}

/// It then requires a gradient, but no optimizer would take it: it is not a leaf.
TEST_P(CompileStepFrozen, AFrozenParameterThatTheLossWritesIntoIsNotTrained) {
  torch::manual_seed(4);
  Race race;
  race.both([](Net& net) { net.freeze("b", true); });
  const auto loss_of = [](Net& net, const Tensor& x, const Tensor& y) {
    net.b->bias.copy_(net.a->bias * 2);
    return net.loss(x, y);
  };
  auto step = compile_step(
      race.mine, [net = race.mine, loss_of](const Tensor& x, const Tensor& y) { return loss_of(*net, x, y); },
      graft::SGD{.lr = 0.1}, {.compile = {.backend = GetParam()}});
  std::vector<Tensor> trained;
  for (const auto& parameter : race.theirs->parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  torch::optim::SGD optimizer(trained, torch::optim::SGDOptions(0.1));
  for (int i = 0; i < 4; ++i) {
    const auto x = at::randn({5, 6}), y = at::randn({5, 3});
    const auto want = loss_of(*race.theirs, x, y);
    EXPECT_NEAR(step(x, y).item<double>(), want.item<double>(), 1e-5) << i;
    optimizer.zero_grad();
    want.backward();
    optimizer.step();
    for (const auto& item : race.mine->named_parameters())
      EXPECT_TRUE(at::allclose(item.value(), race.theirs->named_parameters()[item.key()], 1e-4, 1e-5))
          << item.key() << " in step " << i;
  }
}

TEST_P(CompileStepFrozen, NothingToTrainIsAnError) {
  const auto net = std::make_shared<Net>();
  auto step = compile_step(net, [net](const Tensor& x, const Tensor& y) { return net->loss(x, y); }, SGD{},
                           {.compile = {.backend = GetParam(), .fullgraph = true}});
  for (const char* part : {"a", "b", "c"}) net->freeze(part, true);
  const auto before = net->a->weight.detach().clone();
  EXPECT_THROW(step(at::randn({5, 6}), at::randn({5, 3})), UsageError);
  EXPECT_TRUE(at::equal(net->a->weight, before));
}

INSTANTIATE_TEST_SUITE_P(Backends, CompileStepFrozen,
                         testing::Values(Backend::eager, Backend::aot_eager, Backend::graft),
                         [](const auto& info) {
                           return info.param == Backend::graft   ? "graft"
                                  : info.param == Backend::eager ? "eager"
                                                                 : "aot_eager";
                         });

}  // namespace
}  // namespace graft
