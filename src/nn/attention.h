// Scaled dot-product attention as the models call it.
#pragma once
#include <ATen/core/Tensor.h>

namespace graft::nn {

struct AttentionOptions {
  double scale;
  bool causal = false;  ///< only looked at when there is no mask
  double dropout = 0;   ///< 0 outside training
};

/// q [batch, heads, queries, dim], k and v [batch, kv_heads, keys, dim]: [batch, queries, heads * dim].
/// kv_heads divides heads.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                  const AttentionOptions& options);

/// [batch, seq, heads * dim] -> [batch, heads, seq, dim].
at::Tensor split_heads(const at::Tensor& x, int64_t head_dim);

}  // namespace graft::nn
