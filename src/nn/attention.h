// Scaled dot-product attention as the models call it.
#pragma once
#include <ATen/core/Tensor.h>

namespace graft::nn {

struct AttentionOptions {
  double scale;
  bool causal = false;  ///< only looked at when there is no mask
  double dropout = 0;   ///< 0 outside training
  /// Plain operators in any case. A query whose scores are all the lowest number looks everywhere alike;
  /// SDPA's backward on the CPU, which goes by the logarithm of the sum, takes the weights of such a query
  /// for 1.
  bool plain = false;
  /// Scores s become cap * tanh(s / cap) before the mask; 0 for none. SDPA has no such thing, so these are
  /// plain operators, and the mask must be one of numbers (additive_mask).
  double softcap = 0;
};

/// q [batch, heads, queries, dim], k and v [batch, kv_heads, keys, dim]: [batch, queries, heads * dim].
/// kv_heads divides heads.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                  const AttentionOptions& options);

/// [batch, seq, heads * dim] -> [batch, heads, seq, dim].
at::Tensor split_heads(const at::Tensor& x, int64_t head_dim);

}  // namespace graft::nn
