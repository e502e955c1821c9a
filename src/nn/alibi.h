// Attention with linear biases (Press et al. 2021): each head adds its slope times a key's position to its
// scores.
#pragma once
#include "nn/mask.h"

namespace graft::nn {

/// One slope per head, in float32: powers of 2^(-8 / n) for n heads, and for the heads beyond a power of two
/// those of every other one of twice as many.
at::Tensor alibi_slopes(int64_t heads, const at::Device& device);

/// Where each key stands among the tokens that attention_mask leaves, padding at 0: [batch or 1, 1, 1, keys],
/// of integers.
at::Tensor key_positions(const MaskRequest& request);

/// The bias, and `like`'s lowest number where a query may not look: [batch or 1, heads, queries, keys].
at::Tensor masked_bias(const at::Tensor& bias, const MaskRequest& request);

}  // namespace graft::nn
