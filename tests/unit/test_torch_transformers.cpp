// libtorch's own attention and Transformers, as they come: one graph each, forward and backward, with and
// without masks, in training and out of it.
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "compiled_check.h"
#include "graft/compile.h"
#include "graft/compile_step.h"

namespace graft {
namespace {

using at::Tensor;
using testing_tools::differs;

constexpr int64_t width = 16, heads = 4, batch = 3, length = 5;

Tensor sequence(int64_t steps, int seed) {
  at::manual_seed(seed);
  return at::randn({steps, batch, width});
}

/// -inf above the diagonal
Tensor causal() { return at::full({length, length}, -std::numeric_limits<float>::infinity()).triu(1); }

/// The last place of each row but the first is padding.
Tensor padding() {
  auto mask = at::zeros({batch, length}, at::kBool);
  mask.slice(0, 1).select(1, length - 1).fill_(true);
  return mask;
}

/// Calls both with the same inputs and random numbers; results and all gradients are the same.
template <class Module, class Call>
void expect_one_graph(Module module, Call call) {
  for (const bool training : {false, true}) {
    for (const bool with_gradients : {false, true}) {
      SCOPED_TRACE(std::string(training ? "train" : "eval") + (with_gradients ? ", gradients" : ""));
      module->train(training);
      reset();
      const auto fast = compile([&](Tensor x, Tensor y) -> Tensor { return call(module, x, y); },
                                {.fullgraph = true}, {module.ptr()});
      const at::AutoGradMode mode(with_gradients);
      for (int i = 0; i < 4; ++i) {
        std::vector<Tensor> results[2];
        for (const bool compiled : {false, true}) {
          auto x = sequence(length, 2 * i).requires_grad_(with_gradients);
          const auto y = sequence(length, 2 * i + 1);
          at::manual_seed(i);
          const auto out = compiled ? fast(x, y) : call(module, x, y);
          auto& found = results[compiled];
          found.push_back(out);
          if (!with_gradients) continue;
          module->zero_grad();
          (out * sequence(length, 99)).sum().backward();
          found.push_back(x.grad());
          for (const auto& parameter : module->parameters())
            found.push_back(parameter.grad().defined() ? parameter.grad().clone() : Tensor());
        }
        for (size_t k = 0; k < results[0].size(); ++k)
          EXPECT_EQ(differs(results[1][k], results[0][k], {1e-3, 1e-4, 1e-5}), "")
              << "call " << i << ", result " << k;
      }
      EXPECT_EQ(counters().graphs, 1);
      EXPECT_EQ(counters().graph_breaks, 0);
    }
  }
}

TEST(TorchTransformers, MultiheadAttention) {
  torch::manual_seed(0);
  using torch::nn::MultiheadAttention;
  const MultiheadAttention plain(torch::nn::MultiheadAttentionOptions(width, heads).dropout(0.1));
  expect_one_graph(plain, [](MultiheadAttention m, const Tensor& x, const Tensor&) {
    return std::get<0>(m->forward(x, x, x));
  });
  expect_one_graph(plain, [](MultiheadAttention m, const Tensor& x, const Tensor&) {
    const auto [out, weights] = m->forward(x, x, x, padding(), /*need_weights=*/true, causal());
    return out + weights.sum();
  });
  expect_one_graph(plain, [](MultiheadAttention m, const Tensor& x, const Tensor& y) {
    return std::get<0>(m->forward(x, y, y, {}, /*need_weights=*/false));
  });
  expect_one_graph(plain, [](MultiheadAttention m, const Tensor& x, const Tensor& y) {
    return std::get<0>(m->forward(x, y, y * 2));
  });
  const MultiheadAttention with_biases(
      torch::nn::MultiheadAttentionOptions(width, heads).add_bias_kv(true).add_zero_attn(true));
  expect_one_graph(with_biases, [](MultiheadAttention m, const Tensor& x, const Tensor&) {
    return std::get<0>(m->forward(x, x, x, padding()));
  });
  const MultiheadAttention other_sizes(torch::nn::MultiheadAttentionOptions(width, heads).kdim(8).vdim(8));
  expect_one_graph(other_sizes, [](MultiheadAttention m, const Tensor& x, const Tensor& y) {
    const auto part = y.slice(-1, 0, 8);
    return std::get<0>(m->forward(x, part, part));
  });
}

TEST(TorchTransformers, EncoderLayer) {
  torch::manual_seed(0);
  using torch::nn::TransformerEncoderLayer;
  for (const bool gelu : {false, true}) {
    auto options = torch::nn::TransformerEncoderLayerOptions(width, heads).dim_feedforward(32).dropout(0.1);
    if (gelu) options.activation(torch::kGELU);
    const TransformerEncoderLayer layer(options);
    expect_one_graph(layer, [](TransformerEncoderLayer m, const Tensor& x, const Tensor&) { return m(x); });
    expect_one_graph(layer, [](TransformerEncoderLayer m, const Tensor& x, const Tensor&) {
      return m(x, causal(), padding());
    });
  }
}

TEST(TorchTransformers, Encoder) {
  torch::manual_seed(0);
  using torch::nn::TransformerEncoder;
  const auto layer = torch::nn::TransformerEncoderLayer(
      torch::nn::TransformerEncoderLayerOptions(width, heads).dim_feedforward(32).dropout(0.1));
  const TransformerEncoder encoder(torch::nn::TransformerEncoderOptions(layer, 3).norm(
      torch::nn::AnyModule(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))));
  expect_one_graph(encoder, [](TransformerEncoder m, const Tensor& x, const Tensor&) { return m(x); });
  expect_one_graph(encoder, [](TransformerEncoder m, const Tensor& x, const Tensor&) {
    return m(x, causal(), padding());
  });
}

TEST(TorchTransformers, Decoder) {
  torch::manual_seed(0);
  using torch::nn::TransformerDecoder;
  const auto layer = torch::nn::TransformerDecoderLayer(
      torch::nn::TransformerDecoderLayerOptions(width, heads).dim_feedforward(32).dropout(0.1));
  const TransformerDecoder decoder(torch::nn::TransformerDecoderOptions(layer, 2));
  expect_one_graph(decoder, [](TransformerDecoder m, const Tensor& x, const Tensor& y) { return m(x, y); });
  expect_one_graph(decoder, [](TransformerDecoder m, const Tensor& x, const Tensor& y) {
    return m(x, y, causal(), Tensor(), padding(), padding());
  });
}

TEST(TorchTransformers, Transformer) {
  torch::manual_seed(0);
  using torch::nn::Transformer;
  const Transformer model(torch::nn::TransformerOptions(width, heads, 2, 2).dim_feedforward(32).dropout(0.1));
  expect_one_graph(model, [](Transformer m, const Tensor& x, const Tensor& y) { return m(y, x); });
  expect_one_graph(model, [](Transformer m, const Tensor& x, const Tensor& y) {
    return m(y, x, Tensor(), torch::nn::TransformerImpl::generate_square_subsequent_mask(length));
  });
}

TEST(TorchTransformers, TrainingStep) {
  torch::manual_seed(0);
  torch::nn::TransformerEncoderLayer layer(
      torch::nn::TransformerEncoderLayerOptions(width, heads).dim_feedforward(32).dropout(0.1));
  auto step = compile_step(layer, [&](const Tensor& x) { return layer(x).square().mean(); }, Adam{.lr = 0.01},
                           {.compile = {.fullgraph = true}});
  auto x = sequence(length, 1);
  const auto first = step(x).item<double>();
  for (int i = 0; i < 20; ++i) step(x);
  EXPECT_LT(step(x).item<double>(), first);
  x[0][0].fill_(std::nan(""));
  EXPECT_TRUE(std::isnan(step(x).item<double>()));
}

/// torch asks whether the queries are the keys; where one of them is NaN they are not, and it goes another
/// way.
TEST(TorchTransformers, NaNInTheInput) {
  torch::manual_seed(0);
  torch::nn::TransformerEncoderLayer layer(
      torch::nn::TransformerEncoderLayerOptions(width, heads).dim_feedforward(32));
  layer->eval();
  const auto fast = compile(layer, {.fullgraph = true});
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 6; ++i) {
    auto x = sequence(length, i);
    if (i == 3) x[0][1].fill_(std::nan(""));
    EXPECT_EQ(differs(fast(x), layer->forward(x), {1e-3, 1e-4, 1e-5}), "") << i;
  }
}

}  // namespace
}  // namespace graft
