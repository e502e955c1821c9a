#include "nn/alibi.h"

#include <ATen/ATen.h>

#include <cmath>

#include "graft/error.h"

namespace graft::nn {

at::Tensor alibi_slopes(int64_t heads, const at::Device& device) {
  int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  const auto geometric = [&](int64_t of, int64_t count, int64_t step) {
    const auto base = static_cast<float>(std::exp2(-std::exp2(-(std::log2(static_cast<double>(of)) - 3))));
    const auto exponents = at::arange(1, 1 + count * step, step, at::TensorOptions(at::kInt).device(device));
    return at::pow(at::full({}, base, at::TensorOptions(at::kFloat).device(device)), exponents);
  };
  const auto slopes = geometric(power, power, 1);
  return power == heads ? slopes : at::cat({slopes, geometric(2 * power, heads - power, 2)});
}

at::Tensor key_positions(const MaskRequest& request) {
  const int64_t queries = request.like.size(1);
  const int64_t keys = request.cache ? request.cache->attended_length(queries) : queries;
  const auto options = request.like.options().dtype(at::kLong);
  if (!request.attention_mask.defined()) return at::arange(keys, options).view({1, 1, 1, keys});
  if (request.attention_mask.dim() != 2)
    throw UsageError("[alibi] positions cannot be counted over a ready-made attention_mask");
  auto present = request.attention_mask.to(request.like.device(), at::kLong);
  if (present.size(1) < keys) present = at::constant_pad_nd(present, {0, keys - present.size(1)}, 0);
  return ((present.cumsum(1) - 1) * present).view({present.size(0), 1, 1, keys});
}

at::Tensor masked_bias(const at::Tensor& bias, const MaskRequest& request) {
  auto may_look = causal_mask(request);
  const int64_t queries = request.like.size(1);
  if (!may_look.defined())
    may_look =
        at::ones({queries, queries}, bias.options().dtype(at::kBool)).tril().view({1, 1, queries, queries});
  return at::where(may_look, bias, lowest_number(bias));
}

}  // namespace graft::nn
