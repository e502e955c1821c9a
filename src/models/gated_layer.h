// One layer of a gated decoder.
#pragma once
#include "models/gated_decoder.h"

namespace graft {

/// What every layer of one call is given.
struct GatedLayerInputs {
  at::Tensor mask, window_mask;  ///< the second for layers that have a window
  nn::Rotation rotation;
  std::shared_ptr<KVCache> cache;
};

class GatedAttention : public torch::nn::Module {
 public:
  GatedAttention(const nn::Build& b, const GatedDecoderSpec& s, int64_t layer);
  at::Tensor forward(const at::Tensor& x, const GatedLayerInputs& in);

 private:
  /// Queries, keys and values, each [batch, heads, seq, head_dim].
  std::array<at::Tensor, 3> project(const at::Tensor& x) const;

  int64_t head_dim_, queries_, keys_, layer_;
  double scale_, dropout_, softcap_;
  bool plain_, windowed_;
  std::shared_ptr<nn::Linear> q_proj, k_proj, v_proj, qkv_proj, o_proj;
  std::shared_ptr<nn::RMSNorm> q_norm, k_norm;
};

class GatedMLP : public torch::nn::Module {
 public:
  GatedMLP(const nn::Build& b, const GatedDecoderSpec& s);
  at::Tensor forward(const at::Tensor& x);

 private:
  nn::Activation activation_;
  std::shared_ptr<nn::Linear> gate_proj, up_proj, gate_up_proj, down_proj;
};

class GatedDecoderLayer : public torch::nn::Module {
 public:
  GatedDecoderLayer(const nn::Build& b, const GatedDecoderSpec& s, int64_t layer);
  at::Tensor forward(const at::Tensor& x, const GatedLayerInputs& in);

 private:
  double dropout_;
  std::shared_ptr<GatedAttention> self_attn;
  std::shared_ptr<GatedMLP> mlp;
  /// With four norms the second is after attention, and the last two around the feed-forward block.
  std::shared_ptr<nn::RMSNorm> input_layernorm, post_attention_layernorm, pre_feedforward_layernorm,
      post_feedforward_layernorm;
};

}  // namespace graft
