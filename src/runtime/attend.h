// graft::attend(query, key, value, bias, scale, strides): attention of few queries over many keys.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace graft::runtime {

/// Queries [batch, heads, queries, size] over keys and values [batch, groups, keys, size], each of which
/// serves heads / groups heads that follow one another. A query that sees no key gets zeros. The result lies
/// by the strides.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const std::optional<at::Tensor>& bias, double scale, at::IntArrayRef strides);

}  // namespace graft::runtime
