// compile(): the same results as the function itself, whatever it does with its tensors; run over every
// backend.
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <thread>

#include "graft/compile.h"
#include "support/log.h"

namespace graft {
namespace {

using at::Tensor;

void expect_close(const Tensor& got, const Tensor& want, double tolerance = 1e-5) {
  ASSERT_EQ(got.defined(), want.defined());
  if (!got.defined()) return;
  ASSERT_EQ(got.sizes(), want.sizes());
  ASSERT_EQ(got.scalar_type(), want.scalar_type());
  EXPECT_TRUE(at::allclose(got.detach(), want.detach(), tolerance, tolerance, /*equal_nan=*/true))
      << "got\n"
      << got << "\nwant\n"
      << want;
}

class Compile : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    reset();
    torch::manual_seed(0);
  }
  static CompileOptions options() { return {.backend = GetParam(), .fullgraph = true, .cache = false}; }
};

TEST_P(Compile, FunctionOfTensors) {
  const auto f = [](Tensor x, Tensor y) { return (x * y + 1).exp().sum(1); };
  const auto fast = compile(f, options());
  for (int i = 0; i < 4; ++i) {
    const auto x = at::randn({3, 7}), y = at::randn({7});
    expect_close(fast(x, y), f(x, y));
  }
  EXPECT_EQ(counters().graphs, 1);
  EXPECT_EQ(counters().recompiles, 0);
}

TEST_P(Compile, NewShapeIsANewProgram) {
  const auto fast = compile([](Tensor x) { return x.softmax(-1); }, options());
  for (const int64_t n : {4, 5, 4, 5, 1, 0})
    expect_close(fast(at::ones({2, n})), at::ones({2, n}).softmax(-1));
  EXPECT_EQ(counters().graphs, 4);
  EXPECT_EQ(counters().recompiles, 3);
}

TEST_P(Compile, StructuresOfTensors) {
  const auto f = [](std::vector<Tensor> xs, std::optional<Tensor> bias, bool twice) {
    auto y = xs[0] + xs[1];
    if (bias) y = y + *bias;
    return std::make_pair(twice ? y * 2 : y, std::vector<Tensor>{y, xs[0]});
  };
  const auto fast = compile(f, options());
  const auto a = at::randn({4}), b = at::randn({4}), c = at::randn({4});
  for (const bool twice : {false, true, false})
    for (const auto& bias : {std::optional<Tensor>(), std::optional(c)}) {
      const auto got = fast({a, b}, bias, twice), want = f({a, b}, bias, twice);
      expect_close(got.first, want.first);
      expect_close(got.second[0], want.second[0]);
      EXPECT_TRUE(got.second[1].is_same(a));
    }
  EXPECT_EQ(counters().graphs, 4);
}

TEST_P(Compile, MutationOfAnArgumentIsWrittenBack) {
  const auto f = [](Tensor x) {
    x.add_(1);
    x.slice(0, 0, 2).mul_(3);
    return x.sum();
  };
  const auto fast = compile(f, options());
  for (int i = 0; i < 3; ++i) {
    auto x = at::randn({4, 3}), y = x.clone();
    expect_close(fast(x), f(y));
    expect_close(x, y);
  }
  auto strided = at::randn({3, 4}).t();
  auto copy = strided.clone();
  for (int i = 0; i < 3; ++i) fast(strided), f(copy);
  expect_close(strided, copy);
}

TEST_P(Compile, FunctionWithNoResult) {
  const auto fast = compile([](Tensor x) { x.mul_(2); }, options());
  auto x = at::ones({3});
  for (int i = 0; i < 3; ++i) fast(x);
  expect_close(x, at::full({3}, 8.0));
}

TEST_P(Compile, OutputsThatAreViewsOfInputsShareMemory) {
  const auto fast =
      compile([](Tensor x) { return std::make_tuple(x.view({2, 3}).t(), x, x.slice(0, 2, 4)); }, options());
  for (int i = 0; i < 3; ++i) {
    const auto x = at::randn({6});
    const auto [view, same, part] = fast(x);
    EXPECT_TRUE(same.is_same(x));
    expect_close(view, x.view({2, 3}).t());
    expect_close(part, x.slice(0, 2, 4));
    x.fill_(5);
    expect_close(view, at::full({3, 2}, 5.0));
    expect_close(part, at::full({2}, 5.0));
  }
}

TEST_P(Compile, AliasedArguments) {
  const auto fast = compile([](Tensor x, Tensor y) { return x + y * 2; }, options());
  const auto x = at::randn({6}), y = at::randn({6});
  for (int i = 0; i < 3; ++i) {
    expect_close(fast(x, y), x + y * 2);
    expect_close(fast(x, x), x * 3);
    expect_close(fast(x.slice(0, 0, 4), x.slice(0, 2, 6)), x.slice(0, 0, 4) + x.slice(0, 2, 6) * 2);
  }
}

TEST_P(Compile, MutationThroughAnAliasIsNotLost) {
  auto loose = options();
  loose.fullgraph = false;
  const auto f = [](Tensor x, Tensor y) {
    x.add_(1);
    return y * 2;
  };
  const auto fast = compile(f, loose);
  for (int i = 0; i < 3; ++i) {
    const auto a = at::zeros({4}), b = a.clone();
    expect_close(fast(a, a.slice(0, 1, 3)), f(b, b.slice(0, 1, 3)));
    expect_close(a, b);
  }
}

TEST_P(Compile, OddShapesAndDtypes) {
  const auto f = [](Tensor x, Tensor y) { return (x + y).mul(3).to(at::kDouble); };
  const auto fast = compile(f, [] {
    auto o = options();
    o.recompile_limit = 100;
    return o;
  }());
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte, at::kBool})
    for (int i = 0; i < 2; ++i) {
      const auto x = at::arange(6).reshape({2, 3}).to(dtype), y = at::ones({}, at::kLong);
      expect_close(fast(x, y), f(x, y), 1e-2);
      expect_close(fast(x.t(), y), f(x.t(), y), 1e-2);
      expect_close(fast(x.slice(0, 0, 0), y), f(x.slice(0, 0, 0), y), 1e-2);
      expect_close(fast(x.select(0, 0).select(0, 1), y), f(x.select(0, 0).select(0, 1), y), 1e-2);
      expect_close(fast(x.expand({4, 2, 3}), y), f(x.expand({4, 2, 3}), y), 1e-2);
    }
}

TEST_P(Compile, RandomNumbersAreEager) {
  const auto f = [](Tensor x) { return at::dropout(x, 0.5, true) + at::rand_like(x); };
  const auto fast = compile(f, options());
  std::vector<Tensor> want, got;
  const auto x = at::ones({5, 5});
  torch::manual_seed(3);
  for (int i = 0; i < 4; ++i) want.push_back(f(x));
  torch::manual_seed(3);
  for (int i = 0; i < 4; ++i) got.push_back(fast(x));
  for (int i = 0; i < 4; ++i) expect_close(got[i], want[i]);
}

TEST_P(Compile, GradientsOfArgumentsAndOutsideTensors) {
  const auto w = at::randn({4, 4}).requires_grad_();
  const auto f = [w](Tensor x) { return at::gelu(x.matmul(w)).pow(2).mean(); };
  const auto fast = compile(f, options());
  for (int i = 0; i < 4; ++i) {
    const auto x = at::randn({3, 4}).requires_grad_();
    const auto want = torch::autograd::grad({f(x)}, {x, w}), got = torch::autograd::grad({fast(x)}, {x, w});
    expect_close(got[0], want[0]);
    expect_close(got[1], want[1]);
  }
  EXPECT_EQ(counters().graphs, 1);
  {
    const at::NoGradGuard no_grad;
    const auto x = at::randn({3, 4});
    EXPECT_FALSE(fast(x).requires_grad());
  }
  EXPECT_EQ(counters().graphs, 2);
}

TEST_P(Compile, ModuleTrainingMatchesEager) {
  struct Net : torch::nn::Module {
    torch::nn::Linear a{register_module("a", torch::nn::Linear(6, 8))},
        b{register_module("b", torch::nn::Linear(8, 2))};
    torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(8))};
    torch::nn::Dropout drop{register_module("drop", torch::nn::Dropout(0.1))};
    Tensor forward(const Tensor& x) { return b(drop(norm(a(x).relu()))); }
  };
  const auto run = [&](bool compiled) {
    torch::manual_seed(7);
    const auto net = std::make_shared<Net>();
    auto o = options();
    if (!compiled) o.backend = Backend::eager;
    const auto fast = compile(net, o);
    std::vector<Tensor> seen;
    for (int step = 0; step < 5; ++step) {
      const auto loss = fast(at::randn({4, 6})).square().mean();
      net->zero_grad();
      loss.backward();
      const at::NoGradGuard no_grad;
      for (auto& p : net->parameters()) p.sub_(p.grad() * 0.1);
      seen.push_back(loss.detach());
    }
    net->eval();
    seen.push_back(fast(at::ones({4, 6})).detach());
    for (const auto& b : net->buffers()) seen.push_back(b.detach());
    for (const auto& p : net->parameters()) seen.push_back(p.detach());
    return seen;
  };
  const auto want = run(false), got = run(true);
  for (size_t i = 0; i < want.size(); ++i) expect_close(got[i], want[i]);
  EXPECT_EQ(counters().graphs, 2);
}

TEST_P(Compile, ParametersAreBoundByPath) {
  const auto net = std::make_shared<torch::nn::LinearImpl>(3, 3);
  const auto fast = compile(net, options());
  const at::NoGradGuard no_grad;
  const auto x = at::randn({2, 3});
  for (int i = 0; i < 3; ++i) {
    net->weight.set_data(at::randn({3, 3}));
    expect_close(fast(x), net->forward(x));
    net->weight.mul_(2);
    expect_close(fast(x), net->forward(x));
  }
  EXPECT_EQ(counters().graphs, 1);
}

TEST_P(Compile, InferenceMode) {
  const auto net = std::make_shared<torch::nn::LinearImpl>(3, 3);
  const auto fast = compile(net, options());
  for (int i = 0; i < 3; ++i) {
    const c10::InferenceMode mode;
    const auto x = at::randn({2, 3});
    expect_close(fast(x), net->forward(x));
  }
}

TEST_P(Compile, RegionsOfEqualBlocksAreCompiledOnce) {
  struct Block : torch::nn::Module {
    torch::nn::Linear up{register_module("up", torch::nn::Linear(8, 16))},
        down{register_module("down", torch::nn::Linear(16, 8))};
    Tensor forward(const Tensor& x) { return x + down(at::gelu(up(x))); }
  };
  struct Net : torch::nn::Module {
    torch::nn::ModuleList layers{register_module("layers", torch::nn::ModuleList())};
    Net() {
      for (int i = 0; i < 6; ++i) layers->push_back(std::make_shared<Block>());
    }
    Tensor forward(Tensor x) {
      for (const auto& layer : *layers) x = layer->as<Block>()->forward(x);
      return x.square().mean();
    }
  };
  const auto net = std::make_shared<Net>();
  const auto fast = compile_regions(net, options());
  for (int i = 0; i < 3; ++i) {
    const auto x = at::randn({3, 8}).requires_grad_();
    const auto want = net->forward(x), got = fast(x);
    expect_close(got, want);
    const auto a = torch::autograd::grad({got}, net->parameters()),
               b = torch::autograd::grad({want}, net->parameters());
    for (size_t k = 0; k < a.size(); ++k) expect_close(a[k], b[k]);
  }
  const auto text = fast.explain(at::randn({3, 8}));
  EXPECT_NE(text.find("6 regions, "), std::string::npos) << text;
  EXPECT_EQ(text.find("6 regions, 6"), std::string::npos) << text;
}

TEST_P(Compile, SeveralThreads) {
  const auto fast = compile([](Tensor x) { return x.exp().cumsum(0) + x.size(0); }, options());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto x = at::full({3 + (i + t) % 3, 4}, 0.1 * t);
        if (!at::allclose(fast(x), x.exp().cumsum(0) + x.size(0))) ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(counters().graphs, 3);
}

INSTANTIATE_TEST_SUITE_P(Backends, Compile, testing::Values(Backend::aot_eager, Backend::graft),
                         [](const auto& info) {
                           return info.param == Backend::graft ? "graft" : "aot_eager";
                         });

TEST(CompileBreaks, ValueReadOnTheHost) {
  reset();
  const auto f = [](Tensor x) { return x.sum().item<float>() > 0 ? x + 1 : x - 1; };
  const auto strict = compile(f, {.fullgraph = true});
  try {
    strict(at::ones({3}));
    FAIL();
  } catch (const GraphBreak& found) {
    EXPECT_NE(found.reason().find("aten::_local_scalar_dense"), std::string::npos) << found.reason();
    EXPECT_FALSE(found.backtrace().empty());
  }
  const auto loose = compile(f);
  for (const double v : {1.0, -1.0, 1.0, -1.0}) expect_close(loose(at::full({3}, v)), f(at::full({3}, v)));
  EXPECT_EQ(counters().graph_breaks, 1);
}

TEST(CompileBreaks, MaskedIndexing) {
  const auto f = [](Tensor x) { return x.index({x > 0}); };
  EXPECT_THROW(compile(f, {.fullgraph = true})(at::ones({3})), GraphBreak);
  expect_close(compile(f)(at::ones({3})), at::ones({3}));
}

TEST(CompileBreaks, TensorKeptBeyondTheCall) {
  Tensor kept;
  const auto f = [&kept](Tensor x) { return (kept = x + 1) * 2; };
  EXPECT_THROW(compile(f, {.fullgraph = true})(at::ones({3})), GraphBreak);
  const auto loose = compile(f);
  for (const double v : {1.0, 2.0, 3.0}) {
    loose(at::full({2}, v));
    expect_close(kept, at::full({2}, v + 1));
  }
}

TEST(CompileBreaks, DataPointerReadInside) {
  const auto f = [](Tensor x) { return x * (x + 1).data_ptr<float>()[0]; };
  const auto loose = compile(f);
  for (const double v : {1.0, 2.0, 3.0}) expect_close(loose(at::full({2}, v)), f(at::full({2}, v)));
}

TEST(CompileErrors, ExceptionsPassThroughAndLeaveTheStateAlone) {
  bool fail = true;
  const auto f = [&fail](Tensor x) {
    x.add_(1);
    if (fail) throw std::domain_error("mine");
    return x * 2;
  };
  const auto fast = compile(f);
  auto x = at::zeros({2});
  EXPECT_THROW(fast(x), std::domain_error);
  fail = false;
  x.zero_();
  for (int i = 1; i < 4; ++i) expect_close(fast(x), at::full({2}, 2.0 * i));
  expect_close(at::ones({2}) + 1, at::full({2}, 2.0));  // nothing is captured any more
}

TEST(CompileErrors, ValueBakedInIsFoundOnTheSecondCall) {
  double scale = 2;
  const auto fast = compile([&scale](Tensor x) { return x * scale; }, {.replay = Replay::off});
  fast(at::ones({2}));
  scale = 3;
  try {
    fast(at::ones({2}));
    FAIL();
  } catch (const Mismatch& error) {
    EXPECT_NE(std::string(error.what()).find("aten::mul"), std::string::npos) << error.what();
  }
  std::vector<std::string> warnings;
  set_log_sink([&](std::string_view line) { warnings.emplace_back(line); });
  scale = 2;
  const auto lenient = compile([&scale](Tensor x) { return x * scale; },
                               {.on_mismatch = OnMismatch::eager, .replay = Replay::off});
  lenient(at::ones({2}));
  scale = 3;
  for (int i = 0; i < 3; ++i) expect_close(lenient(at::ones({2})), at::full({2}, 3.0));
  set_log_sink({});
  EXPECT_EQ(warnings.size(), 1U);
}

// ResNet's backward: a ReLU whose argument is rounding noise around 0 lets a gradient pass or not, and either
// is right. Eager and the double-precision judge agreed by luck, and compiled code was called wrong.
TEST(CompileErrors, NoMismatchAtAKink) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    torch::manual_seed(seed);
    auto x = at::randn({1, 3000});
    x.select(1, 0).sub_(x.to(at::kDouble).sum(1).to(at::kFloat));
    const auto fast = compile([](Tensor t) { return (t * 1.1).sum(1).relu(); }, {.cache = false});
    for (int call = 0; call < 2; ++call) {
      const auto leaf = x.detach().clone().requires_grad_();
      EXPECT_NO_THROW(fast(leaf)) << "seed " << seed;
    }
  }
}

// And the excuse of rounding is not one for a wrong gate: here the argument is far from 0.
TEST(CompileErrors, MismatchBesideAKink) {
  double sign = 1;
  const auto fast =
      compile([&sign](Tensor t) { return (t * sign).relu(); }, {.replay = Replay::off, .cache = false});
  const auto x = at::randn({64}).requires_grad_();
  fast(x);
  sign = -1;
  EXPECT_THROW(fast(x), Mismatch);
}

TEST(CompileErrors, RecompileLimit) {
  reset();
  const auto strict = compile([](Tensor x) { return x + 1; }, {.fullgraph = true, .recompile_limit = 2});
  strict(at::ones({1}));
  strict(at::ones({2}));
  try {
    strict(at::ones({3}));
    ADD_FAILURE() << "a third program";
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* part :
         {"shape is [3], the program was compiled for [2]", "Pad", "recompile_limit", "dynamic"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  std::vector<std::string> warnings;
  set_log_sink([&](std::string_view line) { warnings.emplace_back(line); });
  const auto loose = compile([](Tensor x) { return x + 1; }, {.recompile_limit = 2});
  for (int64_t n = 1; n < 6; ++n) expect_close(loose(at::ones({n})), at::full({n}, 2.0));
  set_log_sink({});
  EXPECT_EQ(warnings.size(), 1U);
}

TEST(CompileErrors, UnknownNamesListTheKnown) {
  for (const auto& call : std::vector<std::function<void()>>{
           [] { mode_named("fast"); }, [] { backend_named("tvm"); }, [] { dynamic_named("maybe"); }})
    try {
      call();
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("known: "), std::string::npos);
    }
  EXPECT_EQ(backend_named("inductor"), Backend::graft);
}

TEST(CompileErrors, DifferentiatingTwiceIsRefused) {
  const auto fast = compile([](Tensor x) { return x.pow(3).sum(); });
  const auto x = at::ones({2}).requires_grad_();
  EXPECT_THROW(torch::autograd::grad({fast(x)}, {x}, {}, true, /*create_graph=*/true), Error);
}

TEST(CompileErrors, TensorChangedBetweenForwardAndBackward) {
  const auto fast = compile([](Tensor x, Tensor y) { return (x * y).sum(); });
  const auto x = at::ones({2}).requires_grad_();
  auto y = at::ones({2});
  for (int i = 0; i < 3; ++i) {
    const auto loss = fast(x, y);
    y.add_(1);
    EXPECT_THROW(loss.backward(), Error);
  }
}

// In a process of its own, because GRAFT_LOGS is read once.
TEST(CompileLogs, GuardsAndTheirFailures) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    ::setenv("GRAFT_LOGS", "guards", 1);
    const auto fast = compile([](Tensor x) { return x + 1; }, {.cache = false});
    for (const int64_t n : {2, 3, 2}) fast(at::ones({n}));
    std::_Exit(0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0),
              "made: argument 0: Float\\[2\\](.|\n)*"
              "failed: argument 0: shape is \\[3\\], the program was compiled for \\[2\\](.|\n)*"
              "failed: argument 0: shape is \\[2\\], the program was compiled for \\[3\\]");
}

TEST(CompileGuards, TrainingFlagGradModeAndStructure) {
  reset();
  const auto net = std::make_shared<torch::nn::DropoutImpl>(0.5);
  const auto fast = compile(net, {.fullgraph = true});
  const auto x = at::ones({100});
  for (int i = 0; i < 2; ++i) {
    net->train();
    EXPECT_GT(fast(x).eq(0).sum().item<int64_t>(), 10);
    net->eval();
    EXPECT_EQ(fast(x).eq(0).sum().item<int64_t>(), 0);
  }
  EXPECT_EQ(counters().graphs, 2);
  net->register_module("extra", torch::nn::Linear(1, 1));
  fast(x);
  EXPECT_EQ(counters().graphs, 3);
}

TEST(CompileGuards, OutsideTensorReplaced) {
  Tensor w = at::full({2}, 2.0);
  const auto fast = compile([&w](Tensor x) { return x * w; });
  for (int i = 0; i < 3; ++i) expect_close(fast(at::ones({2})), w);
  w.mul_(2);
  expect_close(fast(at::ones({2})), w);
  w = at::full({2}, 9.0);
  expect_close(fast(at::ones({2})), w);
}

}  // namespace
}  // namespace graft
