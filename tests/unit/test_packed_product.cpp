// Products with packed weights, and the functions that join them.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <functional>

#include "graft/compile.h"
#include "targets/cpu/packed_products.h"

namespace graft {
namespace {

using at::Tensor;
using runtime::Epilogue;

void expect_near(const Tensor& got, const Tensor& wanted) {
  ASSERT_EQ(got.sizes(), wanted.sizes());
  const auto scale = wanted.abs().max().item<double>();
  EXPECT_LE((got - wanted).abs().max().item<double>(), 1e-5 * scale);
}

/// Functions join products wherever oneDNN can do it, faster or not.
struct Joined : testing::TestWithParam<bool> {
  Joined() { cpu::join_always = GetParam(); }
  ~Joined() override { cpu::join_always = false; }
};

// Whether a weight is packed is measured: the results are the same in any case.
TEST_P(Joined, EveryFunctionEqualsATens) {
  const at::NoGradGuard no_grad;
  for (const auto& [rows, in, out] : {std::tuple(1, 64, 96), {37, 128, 256}, {16, 192, 96}}) {
    const auto x = at::randn({rows, in}), weight = at::randn({out, in}), bias = at::randn({out});
    for (const auto epilogue : {Epilogue::none, Epilogue::relu, Epilogue::gelu, Epilogue::gelu_tanh,
                                Epilogue::silu, Epilogue::sigmoid, Epilogue::tanh}) {
      const auto product = cpu::pack_product(rows, in, out);
      if (!product) continue;
      const bool joined = epilogue != Epilogue::none && product->join(epilogue);
      const auto wanted = apply(joined ? epilogue : Epilogue::none, at::linear(x, weight, bias));
      expect_near(product->run(x, weight, bias), wanted);
      expect_near(product->run_plain(x, weight, bias), wanted);
    }
  }
}

struct Layer {
  const char* name;
  std::function<Tensor(const Tensor& product)> after;
};

const std::vector<Layer>& layers() {
  static const std::vector<Layer> all{
      {"relu", [](const Tensor& y) { return at::relu(y); }},
      {"gelu", [](const Tensor& y) { return at::gelu(y); }},
      {"gelu by tanh", [](const Tensor& y) { return at::gelu(y, "tanh"); }},
      {"seen in another shape", [](const Tensor& y) { return at::relu(y.view({4, -1, 768})); }},
      {"of a part", [](const Tensor& y) { return at::relu(y.slice(0, 1)); }},
      {"read twice", [](const Tensor& y) { return at::relu(y) + y.mean(); }},
      {"two functions", [](const Tensor& y) { return at::relu(at::tanh(y)); }},
  };
  return all;
}

/// A product, something after it, and perhaps another product.
struct Net : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(192, 768))},
      second{register_module("second", torch::nn::Linear(768, 8))};
  std::function<Tensor(const Tensor&)> after;
  bool whole;
  Net(std::function<Tensor(const Tensor&)> function, bool both) : after(std::move(function)), whole(both) {}
  Tensor forward(const Tensor& x) {
    const auto y = after(first(x));
    return whole ? second(y) : y;
  }
};

TEST_P(Joined, ProgramsWithFunctionsAfterProducts) {
  const at::NoGradGuard no_grad;
  for (const auto& layer : layers())
    for (const bool whole : {true, false}) {
      SCOPED_TRACE(layer.name);
      const auto net = std::make_shared<Net>(layer.after, whole);
      const auto fast = compile(net, {.fullgraph = true, .cache = false});
      const auto x = at::randn({48, 192});
      const auto wanted = net->forward(x);
      std::vector<Tensor> results;  // all alive at once
      for (int call = 0; call < 4; ++call) results.push_back(fast(x));
      for (const auto& result : results) expect_near(result, wanted);
      net->first->weight.mul_(0.5);  // packed again
      expect_near(fast(x), net->forward(x));
    }
}

TEST_P(Joined, WeightsOfInferenceModeHaveNoVersion) {
  const c10::InferenceMode inference;
  const auto net = std::make_shared<Net>([](const Tensor& y) { return at::relu(y); }, true);
  const auto fast = compile(net, {.fullgraph = true, .cache = false});
  const auto x = at::randn({48, 192});
  for (int call = 0; call < 3; ++call) expect_near(fast(x), net->forward(x));
  net->first->weight.mul_(-2);
  expect_near(fast(x), net->forward(x));
}

INSTANTIATE_TEST_SUITE_P(PackedProduct, Joined, testing::Bool());

}  // namespace
}  // namespace graft
