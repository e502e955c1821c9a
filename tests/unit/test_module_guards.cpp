// Modules that change under a compiled function: a call sees them as they are when it is made.
#include <gtest/gtest.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/parameterdict.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "graft/compile.h"
#include "models/architecture.h"
#include "tiny_models.h"

namespace graft {
namespace {

using at::Tensor;
using torch::nn::Module;

/// Three calls, since the first two are checked.
template <class Fast, class Eager>
void expect_equal(const Fast& fast, const Eager& eager, const Tensor& x, const std::string& when) {
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(at::allclose(fast(x), eager(x), 1e-5, 1e-6)) << "call " << i << ", " << when;
}

struct Pair : Module {
  Tensor a = register_parameter("a", at::randn({3, 3})), b = register_parameter("b", a);
  void put(const std::string& name, const Tensor& tensor) {
    parameters_[name] = tensor;
    (name == "a" ? a : b) = tensor;
  }
  Tensor forward(const Tensor& x) { return x.mm(a).tanh().mm(b); }
};

TEST(ModuleGuards, AnUntiedPairIsTwo) {
  const auto pair = std::make_shared<Pair>();
  const auto fast = compile(pair, {.fullgraph = true});
  const auto eager = [&](const Tensor& x) { return pair->forward(x); };
  const auto x = at::randn({3, 3});
  const at::NoGradGuard no_grad;
  expect_equal(fast, eager, x, "tied");
  pair->put("b", at::randn({3, 3}));
  expect_equal(fast, eager, x, "apart");
  pair->put("b", pair->a);
  expect_equal(fast, eager, x, "tied again");
  pair->put("b", pair->a.detach());  // another tensor over the same memory
  expect_equal(fast, eager, x, "one memory");
  pair->put("b", at::randn({3, 3}));
  expect_equal(fast, eager, x, "apart again");
}

struct Dict : Module {
  torch::nn::ParameterDict all = register_module("all", torch::nn::ParameterDict());
  Dict() {
    for (const char* name : {"a", "b", "c"}) all->insert(name, at::randn({3}));
  }
  Tensor forward(const Tensor& x) {
    auto y = x;
    for (const auto& item : all->named_parameters())
      y = y.tanh() * item.value();  // in the dictionary's order
    return y;
  }
};

TEST(ModuleGuards, AParameterDictAfterPopAndInsertIsAnother) {
  const auto dict = std::make_shared<Dict>();
  const auto fast = compile(dict, {.fullgraph = true});
  const auto eager = [&](const Tensor& x) { return dict->forward(x); };
  const auto x = at::randn({2, 3});
  const at::NoGradGuard no_grad;
  expect_equal(fast, eager, x, "at first");
  const auto a = dict->all->pop("a");
  dict->all->insert("a", a);
  expect_equal(fast, eager, x, "a at the end");
  dict->all->pop("b");
  dict->all->insert("d", at::randn({3}));
  expect_equal(fast, eager, x, "d for b");
}

struct Unit : Module {
  virtual Tensor apply(const Tensor& x) = 0;
};
struct Tanh : Unit {
  Tensor apply(const Tensor& x) override { return x.tanh(); }
};
struct Twice : Unit {
  Tensor apply(const Tensor& x) override { return x * 2; }
};
struct Outer : Module {
  std::shared_ptr<Unit> inner;
  void put(const std::shared_ptr<Unit>& unit) {
    if (inner)
      replace_module("inner", unit);
    else
      register_module("inner", unit);
    inner = unit;
  }
  Tensor forward(const Tensor& x) { return inner->apply(x) + 1; }
};

TEST(ModuleGuards, AChildOfAnotherClassAtTheSameAddressIsSeen) {
  alignas(std::max_align_t) static std::byte place[2048];
  const auto made = [&]<class M>(M*) {
    return std::shared_ptr<Unit>(new (place) M(), [](M* module) { module->~M(); });
  };
  const auto outer = std::make_shared<Outer>();
  outer->put(made(static_cast<Tanh*>(nullptr)));
  const auto fast = compile(outer, {.fullgraph = true});
  const auto eager = [&](const Tensor& x) { return outer->forward(x); };
  const auto x = at::randn({5});
  expect_equal(fast, eager, x, "tanh");
  outer->put(std::make_shared<Twice>());
  outer->put(made(static_cast<Twice*>(nullptr)));
  expect_equal(fast, eager, x, "twice, in the memory of tanh");
}

TEST(ModuleGuards, AModuleThatNobodyNamedTellsItsTrainingFlag) {
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4), torch::nn::Dropout(0.5));
  const auto call = [net](const Tensor& x) mutable { return net->forward(x); };
  const auto fast = compile(call, {.fullgraph = true, .recompile_limit = 100});
  const auto x = at::randn({8, 4});
  const at::NoGradGuard no_grad;
  for (const bool training : {true, false, true, false}) {
    net->train(training);
    for (int i = 0; i < 3; ++i) {
      torch::manual_seed(i);
      std::vector<Tensor> before;
      for (const auto& buffer : net->buffers()) before.push_back(buffer.clone());
      const auto got = fast(x);
      std::vector<Tensor> moved;
      for (size_t k = 0; k < before.size(); ++k) {
        moved.push_back(net->buffers()[k].clone());
        net->buffers()[k].copy_(before[k]);
      }
      torch::manual_seed(i);
      EXPECT_TRUE(at::allclose(got, net->forward(x), 1e-5, 1e-6)) << training << ", call " << i;
      for (size_t k = 0; k < moved.size(); ++k)
        EXPECT_TRUE(at::allclose(net->buffers()[k], moved[k], 1e-5, 1e-6)) << training << ", call " << i;
    }
  }
}

struct Noisy : Module {
  Tensor forward(const Tensor& x) { return is_training() ? x * 3 : x; }
};

TEST(ModuleGuards, CodeThatAsksForTheTrainingFlagIsCompiledForBoth) {
  const auto noisy = std::make_shared<Noisy>();
  const auto call = [noisy](const Tensor& x) { return noisy->forward(x); };
  const auto fast = compile(call, {.fullgraph = true});
  const auto x = at::randn({5});
  reset();
  for (int round = 0; round < 3; ++round)
    for (const bool training : {true, false}) {
      noisy->train(training);
      expect_equal(fast, call, x, training ? "training" : "eval");
    }
  EXPECT_EQ(counters().graphs, 2);
}

TEST(ModuleGuards, ModelsThatNobodyNamedTellTheirTrainingFlag) {
  for (const auto& architecture : architectures()) {
    if (architecture.name != "GPT2LMHeadModel" && architecture.name != "ResNetForImageClassification")
      continue;
    SCOPED_TRACE(std::string(architecture.name));
    const auto model = testing_tools::tiny_model(architecture);
    const auto inputs = testing_tools::tiny_batch(architecture);
    const auto call = [model](const ModelInputs& in) { return model->forward(in).logits; };
    const auto fast = compile(call, {.fullgraph = true, .recompile_limit = 100});
    const at::NoGradGuard no_grad;
    for (const bool training : {true, false, true, false}) {
      model->train(training);
      for (int i = 0; i < 3; ++i) {
        if (training) {
          fast(inputs);  // moves statistics and draws numbers
          continue;
        }
        EXPECT_TRUE(at::allclose(fast(inputs), call(inputs), 1e-4, 1e-5)) << "call " << i;
      }
    }
  }
}

/// A layer's numbers and flags are guards, also where the code is not replayed.
TEST(ModuleGuards, OptionsOfLayers) {
  torch::nn::Sequential layers(torch::nn::Linear(4, 6), torch::nn::LeakyReLU(), torch::nn::Softmax(1),
                               torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
  CompileOptions options{.fullgraph = true, .recompile_limit = 64};
  options.replay = Replay::off;
  const auto fast = compile([&](const Tensor& x) { return layers->forward(x); }, options, {layers.ptr()});
  const auto eager = [&](const Tensor& x) { return layers->forward(x); };
  const auto x = at::randn({3, 4});
  reset();
  expect_equal(fast, eager, x, "as made");
  for (const bool again : {false, true}) {
    SCOPED_TRACE(again);
    layers->at<torch::nn::LeakyReLUImpl>(1).options.negative_slope(0.7);
    expect_equal(fast, eager, x, "another slope");
    layers->at<torch::nn::SoftmaxImpl>(2).options.dim(0);
    expect_equal(fast, eager, x, "another dimension");
    layers->at<torch::nn::LayerNormImpl>(3).options.eps(0.5);
    expect_equal(fast, eager, x, "another epsilon");
    layers->at<torch::nn::LeakyReLUImpl>(1).options.negative_slope(0.01);
    layers->at<torch::nn::SoftmaxImpl>(2).options.dim(1);
    layers->at<torch::nn::LayerNormImpl>(3).options.eps(1e-5);
    expect_equal(fast, eager, x, "as made");
  }
  EXPECT_EQ(counters().graphs, 4);
}

TEST(ModuleGuards, AnotherChanceToDrop) {
  torch::nn::Dropout dropout(0.5);
  CompileOptions options{.fullgraph = true};
  options.replay = Replay::off;
  const auto fast = compile([&](const Tensor& x) { return dropout(x); }, options, {dropout.ptr()});
  const auto x = at::ones({1000});
  for (int call = 0; call < 3; ++call) EXPECT_NEAR((fast(x) == 0).sum().item<double>(), 500, 100);
  dropout->options.p(0.9);
  for (int call = 0; call < 3; ++call) EXPECT_NEAR((fast(x) == 0).sum().item<double>(), 900, 60);
}

}  // namespace
}  // namespace graft
