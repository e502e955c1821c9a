// What a cache holds follows the model's keys: the model may have been moved or cast since they were kept.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "graft/error.h"

namespace graft::nn {

inline bool is_like(const at::Tensor& held, const at::Tensor& keys) {
  return held.scalar_type() == keys.scalar_type() && held.device() == keys.device();
}

/// `given_to_program`: the buffers are inputs of a compiled program, which cannot put others in their place.
inline void follow(at::Tensor& held, const at::Tensor& keys, bool given_to_program) {
  if (!held.defined() || is_like(held, keys)) return;
  const auto kind = [](const at::Tensor& x) {
    return std::string(c10::toString(x.scalar_type())) + " on " + x.device().str();
  };
  if (given_to_program)
    throw UsageError("[cache] the cache holds " + kind(held) + ", and the model now gives " + kind(keys) +
                     ": make one call of the model itself with it, not of the compiled one, or make a new "
                     "cache");
  held = held.to(keys.options());
}

}  // namespace graft::nn
