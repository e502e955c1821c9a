#include "nn/mask.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <limits>

#include "graft/error.h"

namespace graft::nn {
namespace {

/// [batch, keys] 0/1 of any dtype -> [batch, 1, 1, keys] bool; keys that a static cache has room for but
/// nobody wrote are padding.
at::Tensor padding(const MaskRequest& request, int64_t keys) {
  auto mask = request.attention_mask.to(request.like.device()).to(at::kBool);
  if (mask.size(0) != request.like.size(0))
    throw UsageError("[mask] attention_mask is for a batch of " + std::to_string(mask.size(0)) +
                     ", the input for " + std::to_string(request.like.size(0)));
  if (mask.size(1) > keys)
    throw UsageError("[mask] attention_mask covers " + std::to_string(mask.size(1)) + " tokens, only " +
                     std::to_string(keys) + " are attended to");
  if (mask.size(1) < keys) mask = at::constant_pad_nd(mask, {0, keys - mask.size(1)}, 0);
  return mask.view({mask.size(0), 1, 1, keys});
}

/// Tokens of one row belong together while their positions rise by one: [batch, 1, queries, keys].
at::Tensor same_sequence(const at::Tensor& position_ids, int64_t batch) {
  const auto positions = position_ids.expand({batch, position_ids.size(-1)});
  const auto step = at::diff(positions, 1, -1, positions.slice(1, 0, 1) - 1);
  const auto sequence = step.ne(1).cumsum(-1);
  return sequence.unsqueeze(1).unsqueeze(-1).eq(sequence.unsqueeze(1).unsqueeze(1));
}

bool is_ready_made(const at::Tensor& mask) {
  if (!mask.defined()) return false;
  if (mask.dim() == 2) return false;
  if (mask.dim() == 4) return true;
  throw UsageError("[mask] attention_mask must have 2 or 4 dimensions, got " + std::to_string(mask.dim()));
}

}  // namespace

at::Tensor causal_mask(const MaskRequest& request) {
  if (is_ready_made(request.attention_mask)) return request.attention_mask;
  const int64_t batch = request.like.size(0), queries = request.like.size(1);
  const int64_t keys = request.cache ? request.cache->attended_length(queries) : queries;
  const bool packed =
      request.packed_positions.defined() && !request.attention_mask.defined() && !request.cache;
  // Without a cache the flag will do where the window covers every token.
  const bool windowed = request.window > 0 && (request.cache || request.window < queries);
  if (!request.attention_mask.defined() && !request.cache && !packed && !windowed) return {};

  const auto options = request.like.options().dtype(at::kLong);
  auto query = at::arange(queries, options);
  if (request.cache) query = query + request.cache->seen_tensor(request.like.device());
  const auto key = at::arange(keys, options).unsqueeze(0);
  query = query.unsqueeze(-1);
  auto mask = key.le(query);
  if (windowed) mask = mask.logical_and(key.gt(query - request.window));
  mask = mask.view({-1, 1, queries, keys});  // of each row, where a cache counts rows by themselves
  if (request.attention_mask.defined()) mask = mask.logical_and(padding(request, keys));
  if (packed) mask = mask.logical_and(same_sequence(request.packed_positions, batch));
  return mask.expand({batch, 1, queries, keys});
}

at::Tensor bidirectional_mask(const MaskRequest& request) {
  if (is_ready_made(request.attention_mask)) return request.attention_mask;
  if (!request.attention_mask.defined()) return {};
  const int64_t batch = request.like.size(0), queries = request.like.size(1);
  const int64_t keys = request.cache ? request.cache->attended_length(queries) : queries;
  return padding(request, keys).expand({batch, 1, queries, keys});
}

at::Tensor lowest_number(const at::Tensor& like) {
  double lowest = 0;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, like.scalar_type(), "lowest_number", [&] {
    lowest = static_cast<double>(std::numeric_limits<scalar_t>::lowest());
  });
  return at::full({}, lowest, like.options());
}

at::Tensor additive_mask(const at::Tensor& mask, const at::Tensor& like) {
  if (!mask.defined() || mask.scalar_type() != at::kBool) return mask;
  return at::where(mask, at::zeros({}, like.options()), lowest_number(like));
}

}  // namespace graft::nn
