// Attention masks: boolean [batch, 1, queries, keys], true where a query may look.
//
// An undefined mask means "none needed": full attention, or plain causal attention by SDPA's own flag.
// Nothing here reads a tensor's values on the host, so masks are the same program for every batch of a shape.
#pragma once
#include "graft/cache.h"

namespace graft::nn {

struct MaskRequest {
  at::Tensor like;  ///< the embedded input, [batch, queries, hidden]
  at::Tensor
      attention_mask;  ///< [batch, keys] of 0/1, or a ready [batch, 1, queries, keys]; may be undefined
  const KVCache* cache = nullptr;
  /// As the caller gave them, when rows may hold several sequences: a sequence starts where positions do not
  /// rise by one, and does not see the ones before it. Undefined otherwise. Only looked at where there is
  /// neither mask nor cache.
  at::Tensor packed_positions = {};
  /// How many tokens a query sees, itself included; 0 for all before it. Only for causal_mask.
  int64_t window = 0;
};

at::Tensor causal_mask(const MaskRequest& request);
at::Tensor bidirectional_mask(const MaskRequest& request);

/// The lowest number of `like`'s dtype, as a tensor of no dimensions.
at::Tensor lowest_number(const at::Tensor& like);

/// A boolean mask as numbers to add to scores: 0 where a query may look, else `like`'s lowest number, so that
/// a query that may look nowhere looks everywhere alike. What is no boolean mask stays as it is.
at::Tensor additive_mask(const at::Tensor& mask, const at::Tensor& like);

}  // namespace graft::nn
