// Points in groups around their means. PEFT's files of ADAMSS do not hold the groups; they are found again.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace graft::adapters {

/// The group of each of the points [n, features], from 0 to groups - 1: Lloyd's algorithm in float32 with at
/// most so many rounds, as scikit-learn's KMeans(groups, init="random", n_init=1, max_iter=rounds,
/// random_state=seed) has it.
at::Tensor k_means(const at::Tensor& points, int64_t groups, int64_t rounds, uint32_t seed);

}  // namespace graft::adapters
