#include "models/gated_layer.h"

#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/queries.h"

namespace graft {

GatedAttention::GatedAttention(const nn::Build& b, const GatedDecoderSpec& s, int64_t layer)
    : head_dim_(s.head_dim),
      queries_(s.heads * s.head_dim),
      keys_(s.kv_heads * s.head_dim),
      layer_(layer),
      scale_(s.scale),
      dropout_(s.attention_dropout),
      softcap_(s.attention_softcap),
      plain_(s.plain_attention),
      windowed_(!s.windows.empty() && s.windows[layer] > 0) {
  if (s.fused) {
    qkv_proj = b.child<nn::Linear>(*this, "qkv_proj", s.hidden, queries_ + 2 * keys_, s.qkv_bias);
  } else {
    q_proj = b.child<nn::Linear>(*this, "q_proj", s.hidden, queries_, s.qkv_bias);
    k_proj = b.child<nn::Linear>(*this, "k_proj", s.hidden, keys_, s.qkv_bias);
    v_proj = b.child<nn::Linear>(*this, "v_proj", s.hidden, keys_, s.qkv_bias);
    nn::lay_side_by_side({q_proj, k_proj, v_proj});
  }
  o_proj = b.child<nn::Linear>(*this, "o_proj", queries_, s.hidden, s.output_bias);
  if (s.head_norms) {
    q_norm = b.child<nn::RMSNorm>(*this, "q_norm", s.head_dim, s.eps, s.norm_form);
    k_norm = b.child<nn::RMSNorm>(*this, "k_norm", s.head_dim, s.eps, s.norm_form);
  }
}

std::array<at::Tensor, 3> GatedAttention::project(const at::Tensor& x) const {
  const auto heads = [&](const at::Tensor& y) { return nn::split_heads(y, head_dim_); };
  if (qkv_proj) {
    const auto all = qkv_proj->forward(x).split_with_sizes({queries_, keys_, keys_}, -1);
    return {heads(all[0]), heads(all[1]), heads(all[2])};
  }
  std::array<at::Tensor, 3> qkv{heads(q_proj->forward(x)), heads(k_proj->forward(x)),
                                heads(v_proj->forward(x))};
  if (q_norm) {
    qkv[0] = q_norm->forward(qkv[0]);
    qkv[1] = k_norm->forward(qkv[1]);
  }
  return qkv;
}

at::Tensor GatedAttention::forward(const at::Tensor& x, const GatedLayerInputs& in) {
  auto [q, k, v] = project(x);
  q = nn::rotate(q, in.rotation);
  k = nn::rotate(k, in.rotation);
  if (in.cache) std::tie(k, v) = in.cache->update(layer_, k, v);
  const nn::AttentionOptions options{.scale = scale_,
                                     .causal = true,
                                     .dropout = is_training() ? dropout_ : 0.0,
                                     .plain = plain_,
                                     .softcap = softcap_};
  const nn::WithQueries shown(q);
  return o_proj->forward(nn::attend(q, k, v, windowed_ ? in.window_mask : in.mask, options));
}

GatedMLP::GatedMLP(const nn::Build& b, const GatedDecoderSpec& s) : activation_(s.activation) {
  if (s.fused) {
    gate_up_proj = b.child<nn::Linear>(*this, "gate_up_proj", s.hidden, 2 * s.intermediate, s.mlp_bias);
  } else {
    gate_proj = b.child<nn::Linear>(*this, "gate_proj", s.hidden, s.intermediate, s.mlp_bias);
    up_proj = b.child<nn::Linear>(*this, "up_proj", s.hidden, s.intermediate, s.mlp_bias);
    nn::lay_side_by_side({gate_proj, up_proj});
  }
  down_proj = b.child<nn::Linear>(*this, "down_proj", s.intermediate, s.hidden, s.mlp_bias);
}

at::Tensor GatedMLP::forward(const at::Tensor& x) {
  if (!gate_up_proj) return down_proj->forward(activation_(gate_proj->forward(x)) * up_proj->forward(x));
  const auto both = gate_up_proj->forward(x).chunk(2, -1);
  return down_proj->forward(both[1] * activation_(both[0]));
}

GatedDecoderLayer::GatedDecoderLayer(const nn::Build& b, const GatedDecoderSpec& s, int64_t layer)
    : dropout_(s.residual_dropout) {
  const auto norm = [&](const char* name) {
    return b.child<nn::RMSNorm>(*this, name, s.hidden, s.eps, s.norm_form);
  };
  self_attn = b.child<GatedAttention>(*this, "self_attn", s, layer);
  mlp = b.child<GatedMLP>(*this, "mlp", s);
  input_layernorm = norm("input_layernorm");
  post_attention_layernorm = norm("post_attention_layernorm");
  if (s.four_norms) {
    pre_feedforward_layernorm = norm("pre_feedforward_layernorm");
    post_feedforward_layernorm = norm("post_feedforward_layernorm");
  }
}

at::Tensor GatedDecoderLayer::forward(const at::Tensor& x, const GatedLayerInputs& in) {
  const auto dropped = [&](const at::Tensor& y) { return nn::dropout(y, dropout_, is_training()); };
  const auto attention = self_attn->forward(input_layernorm->forward(x), in);
  if (!pre_feedforward_layernorm) {
    const auto attended = x + dropped(attention);
    return attended + dropped(mlp->forward(post_attention_layernorm->forward(attended)));
  }
  const auto attended = x + dropped(post_attention_layernorm->forward(attention));
  const auto fed = mlp->forward(pre_feedforward_layernorm->forward(attended));
  return attended + dropped(post_feedforward_layernorm->forward(fed));
}

}  // namespace graft
