#include "nn/attention.h"

#include <ATen/ATen.h>

#include "nn/mask.h"

namespace graft::nn {
namespace {

at::Tensor repeat_heads(const at::Tensor& x, int64_t times) {
  const auto batch = x.size(0), heads = x.size(1), length = x.size(2), dim = x.size(3);
  return x.unsqueeze(2)
      .expand({batch, heads, times, length, dim})
      .reshape({batch, heads * times, length, dim});
}

at::Tensor merged_heads(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0), x.size(2), x.size(1) * x.size(3)});
}

/// Softmax in float32, as transformers' eager attention has it.
at::Tensor attend_plainly(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& mask, const AttentionOptions& options) {
  const int64_t groups = q.size(1) / k.size(1), queries = q.size(2);
  const auto keys = groups > 1 ? repeat_heads(k, groups) : k,
             values = groups > 1 ? repeat_heads(v, groups) : v;
  auto scores = at::matmul(q, keys.transpose(2, 3)) * options.scale;
  if (options.softcap > 0) scores = at::tanh(scores / options.softcap) * options.softcap;
  if (mask.defined()) {
    scores = scores + mask;
  } else if (options.causal && queries > 1) {
    const auto seen = at::ones({queries, k.size(2)}, q.options().dtype(at::kBool)).tril();
    scores = scores + additive_mask(seen, scores);
  }
  auto weights = at::softmax(scores, -1, at::kFloat).to(q.scalar_type());
  if (options.dropout > 0) weights = at::dropout(weights, options.dropout, /*train=*/true);
  return merged_heads(at::matmul(weights, values));
}

}  // namespace

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                  const AttentionOptions& options) {
  if (options.softcap > 0 || options.plain) return attend_plainly(q, k, v, mask, options);
  const int64_t groups = q.size(1) / k.size(1);
  // With a mask SDPA's own grouping falls back to its slowest path on CUDA; without one it saves the copies.
  const bool grouped = groups > 1 && !mask.defined() && k.size(-1) == v.size(-1) && k.size(-1) <= 256;
  const bool repeat = groups > 1 && !grouped;
  const auto keys = repeat ? repeat_heads(k, groups) : k, values = repeat ? repeat_heads(v, groups) : v;
  // A single query sees every key: the flag would align it with the first one.
  const bool causal = options.causal && !mask.defined() && q.size(2) > 1;
  std::optional<at::Tensor> bias;
  if (mask.defined()) bias = mask;
  const auto out = at::scaled_dot_product_attention(q, keys, values, bias, options.dropout, causal,
                                                    options.scale, grouped);
  return merged_heads(out);
}

at::Tensor split_heads(const at::Tensor& x, int64_t head_dim) {
  return x.view({x.size(0), x.size(1), -1, head_dim}).transpose(1, 2);
}

}  // namespace graft::nn
