// Products, recurrent cells, and what people write out of several ops.
#include <torch/nn/functional/activation.h>

#include "bench/op_table.h"

namespace graft::cli::bench {
namespace {

constexpr int64_t kHidden = 256, kBatch = 64, kSteps = 8;

Tensors two(const std::tuple<at::Tensor, at::Tensor>& made) { return {std::get<0>(made), std::get<1>(made)}; }

/// A cell's or a layer's x, h and weights; `gates` lie one below the other.
std::vector<OpInput> recurrent(const std::vector<int64_t>& x, const std::vector<int64_t>& state,
                               int64_t gates, bool cell_state) {
  std::vector<OpInput> all{trained("x", x), trained("h", state)};
  if (cell_state) all.push_back(trained("c", state));
  for (const char* name : {"w_ih", "w_hh"})
    all.push_back(trained(name, {gates * kHidden, kHidden}, -0.06, 0.06));
  for (const char* name : {"b_ih", "b_hh"}) all.push_back(trained(name, {gates * kHidden}, -0.06, 0.06));
  return all;
}

/// How often |z| stays below 2: long chains of elementwise ops.
Tensors mandelbrot(const Tensors& in) {
  auto re = at::zeros_like(in[0]), im = at::zeros_like(in[1]), count = at::zeros_like(in[0]);
  for (int i = 0; i < 20; ++i) {
    const auto next = re * re - im * im + in[0];
    im = 2 * re * im + in[1];
    re = next;
    count = count + (re * re + im * im < 4).to(count.scalar_type());
    re = re.clamp(-10, 10);
    im = im.clamp(-10, 10);
  }
  return {count};
}

/// Each round asks the host what to do next.
Tensors three_breaks(const Tensors& in) {
  auto x = in[0];
  for (int i = 0; i < 3; ++i) {
    x = (x * in[1]).tanh();
    x = x.abs().mean().item<double>() > 0.01 ? x + in[1] : x - in[1];
  }
  return {x};
}

Tensors ten_inputs(const Tensors& in) {
  auto sum = in[0];
  for (size_t i = 1; i < in.size(); ++i) sum = sum * 0.5 + in[i];
  return {sum};
}

std::vector<OpInput> ten_small() {
  constexpr int inputs = 10;
  std::vector<OpInput> all;
  all.reserve(inputs);
  for (int i = 0; i < inputs; ++i) all.push_back(trained("x" + std::to_string(i), {8}));
  return all;
}

Tensors swiglu(const Tensors& in) {
  return {at::linear(at::silu(at::linear(in[0], in[1])) * at::linear(in[0], in[2]), in[3])};
}

Tensors rotary(const Tensors& in) {
  const auto halves = in[0].chunk(2, -1);
  return {in[0] * in[1] + at::cat({-halves[1], halves[0]}, -1) * in[2]};
}

/// What torch::nn::TransformerEncoderLayer calls, with its weights as arguments.
Tensors encoder_layer(const Tensors& in) {
  namespace F = torch::nn::functional;
  const auto &x = in[0], &attention = in[1], &attention_bias = in[2], &out = in[3], &out_bias = in[4];
  const auto width = x.size(-1);
  const auto heads = F::multi_head_attention_forward(
      x, x, x,
      F::MultiheadAttentionForwardFuncOptions(width, 4, attention, attention_bias, {}, {}, false, 0.0, out,
                                              out_bias)
          .training(false)
          .need_weights(false));
  const auto mixed = at::layer_norm(x + std::get<0>(heads), {width}, in[5], in[6]);
  const auto inner = at::linear(at::relu(at::linear(mixed, in[7], in[8])), in[9], in[10]);
  return {at::layer_norm(mixed + inner, {width}, in[11], in[12])};
}

std::vector<OpInput> encoder_inputs() {
  constexpr int64_t kWidth = 128, kInner = 512;
  const auto weight = [](const char* name, const std::vector<int64_t>& shape) {
    return trained(name, shape, -0.08, 0.08);
  };
  return {trained("x", {32, 8, kWidth}),        weight("in_proj_weight", {3 * kWidth, kWidth}),
          weight("in_proj_bias", {3 * kWidth}), weight("out_proj_weight", {kWidth, kWidth}),
          weight("out_proj_bias", {kWidth}),    trained("norm1_weight", {kWidth}, 0.5, 1.5),
          weight("norm1_bias", {kWidth}),       weight("linear1_weight", {kInner, kWidth}),
          weight("linear1_bias", {kInner}),     weight("linear2_weight", {kWidth, kInner}),
          weight("linear2_bias", {kWidth}),     trained("norm2_weight", {kWidth}, 0.5, 1.5),
          weight("norm2_bias", {kWidth})};
}

}  // namespace

std::vector<Op> product_ops() {
  const auto x = trained("x", {256, 512}), weight = trained("weight", {512, 512}),
             bias = trained("bias", {512});
  const auto image = trained("x", {4, 32, 28, 28});
  const std::vector<int64_t> heads{4, 8, 128, 64};
  return {
      {"mm", {x, trained("y", {512, 512})}, GRAFT_OP(at::mm(in[0], in[1]))},
      {"mm_transposed", {x, trained("y", {512, 512})}, GRAFT_OP(at::mm(in[0], in[1].t()))},
      {"mv", {trained("x", {2048, 1024}), trained("y", {1024})}, GRAFT_OP(at::mv(in[0], in[1]))},
      {"matmul_batched",
       {trained("x", {8, 64, 256}), trained("y", {256, 256})},
       GRAFT_OP(at::matmul(in[0], in[1]))},
      {"bmm", {trained("x", {32, 128, 64}), trained("y", {32, 64, 128})}, GRAFT_OP(at::bmm(in[0], in[1]))},
      {"addmm", {bias, x, trained("y", {512, 512})}, GRAFT_OP(at::addmm(in[0], in[1], in[2]))},
      {"baddbmm",
       {trained("z", {32, 128, 128}), trained("x", {32, 128, 64}), trained("y", {32, 64, 128})},
       GRAFT_OP(at::baddbmm(in[0], in[1], in[2]))},
      {"linear", {x, weight, bias}, GRAFT_OP(at::linear(in[0], in[1], in[2]))},
      {"linear_one_row",
       {trained("x", {1, 1024}), trained("weight", {1024, 1024}), trained("bias", {1024})},
       GRAFT_OP(at::linear(in[0], in[1], in[2]))},
      {"einsum_bmm",
       {trained("x", {32, 128, 64}), trained("y", {32, 64, 128})},
       GRAFT_OP(at::einsum("bij,bjk->bik", {in[0], in[1]}))},
      {"einsum_heads",
       {trained("x", {4, 128, 8, 64}), trained("y", {4, 128, 8, 64})},
       GRAFT_OP(at::einsum("bqhd,bkhd->bhqk", {in[0], in[1]}))},
      {"einsum_outer",
       {trained("x", {1024}), trained("y", {1024})},
       GRAFT_OP(at::einsum("i,j->ij", {in[0], in[1]}))},
      {"conv1d",
       {trained("x", {8, 64, 256}), trained("weight", {64, 64, 3}), trained("bias", {64})},
       GRAFT_OP(at::conv1d(in[0], in[1], in[2], 1, 1))},
      {"conv2d",
       {image, trained("weight", {64, 32, 3, 3}), trained("bias", {64})},
       GRAFT_OP(at::conv2d(in[0], in[1], in[2], 1, 1))},
      {"conv2d_pointwise",
       {image, trained("weight", {128, 32, 1, 1}), trained("bias", {128})},
       GRAFT_OP(at::conv2d(in[0], in[1], in[2]))},
      {"conv2d_depthwise",
       {trained("x", {8, 32, 56, 56}), trained("weight", {32, 1, 3, 3}), trained("bias", {32})},
       GRAFT_OP(at::conv2d(in[0], in[1], in[2], 1, 1, 1, 32))},
      {"conv_transpose2d",
       {trained("x", {4, 32, 14, 14}), trained("weight", {32, 32, 4, 4}), trained("bias", {32})},
       GRAFT_OP(at::conv_transpose2d(in[0], in[1], in[2], 2, 1))},
      {"conv3d",
       {trained("x", {1, 16, 12, 24, 24}), trained("weight", {16, 16, 3, 3, 3}), trained("bias", {16})},
       GRAFT_OP(at::conv3d(in[0], in[1], in[2], 1, 1))},
      {"sdpa",
       {trained("q", heads), trained("k", heads), trained("v", heads)},
       GRAFT_OP(at::scaled_dot_product_attention(in[0], in[1], in[2]))},
      {"sdpa_causal",
       {trained("q", heads), trained("k", heads), trained("v", heads)},
       GRAFT_OP(at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0.0, true))},
  };
}

std::vector<Op> recurrent_ops() {
  const std::vector<int64_t> batch{kBatch, kHidden}, sequence{kSteps, 16, kHidden}, state{1, 16, kHidden};
  return {
      {"rnn_tanh_cell", recurrent(batch, batch, 1, false),
       GRAFT_OP(at::rnn_tanh_cell(in[0], in[1], in[2], in[3], in[4], in[5]))},
      {"gru_cell", recurrent(batch, batch, 3, false),
       GRAFT_OP(at::gru_cell(in[0], in[1], in[2], in[3], in[4], in[5]))},
      {"lstm_cell", recurrent(batch, batch, 4, true),
       [](const Tensors& in) {
         return two(at::lstm_cell(in[0], {in[1], in[2]}, in[3], in[4], in[5], in[6]));
       }},
      {"rnn_tanh", recurrent(sequence, state, 1, false),
       [](const Tensors& in) {
         return two(
             at::rnn_tanh(in[0], in[1], {in[2], in[3], in[4], in[5]}, true, 1, 0, false, false, false));
       }},
      {"gru", recurrent(sequence, state, 3, false),
       [](const Tensors& in) {
         return two(at::gru(in[0], in[1], {in[2], in[3], in[4], in[5]}, true, 1, 0, false, false, false));
       }},
      {"lstm", recurrent(sequence, state, 4, true),
       [](const Tensors& in) -> Tensors {
         const auto made =
             at::lstm(in[0], {in[1], in[2]}, {in[3], in[4], in[5], in[6]}, true, 1, 0, false, false, false);
         return {std::get<0>(made), std::get<1>(made), std::get<2>(made)};
       }},
  };
}

std::vector<Op> composite_ops() {
  const std::vector<int64_t> rows{1024, 768}, plane{256, 512};
  return {
      {"pointwise",
       {trained("x", rows), trained("y", rows), trained("z", rows)},
       GRAFT_OP(at::gelu(in[0]) * in[1] + in[2])},
      {"softmax_layer_norm",
       {trained("x", rows), trained("weight", {768}), trained("bias", {768})},
       GRAFT_OP(at::layer_norm(at::softmax(in[0], -1), {in[0].size(-1)}, in[1], in[2]))},
      {"swiglu",
       {trained("x", {64, 256}), trained("gate", {512, 256}), trained("up", {512, 256}),
        trained("down", {256, 512})},
       swiglu},
      {"rotary", {trained("x", {8, 8, 128, 64}), fixed("cos", {128, 64}), fixed("sin", {128, 64})}, rotary},
      {"mandelbrot", {fixed("re", plane, -2, 0.5), fixed("im", plane, -1.2, 1.2)}, mandelbrot, chaotic},
      {"three_breaks", {trained("x", rows), trained("y", rows)}, three_breaks, breaks},
      {"ten_inputs", ten_small(), ten_inputs},
      {"encoder_layer", encoder_inputs(), encoder_layer},
  };
}

}  // namespace graft::cli::bench
