// Singular value decompositions of weights.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace graft::adapters {

/// u diag(s) vh, the largest first.
struct Singular {
  at::Tensor u, s, vh;  // [rows, n], [n], [n, columns]
};

/// Of the whole matrix.
Singular singular(const at::Tensor& matrix);
/// Only the `count` largest, about: Halko's randomised algorithm with so many `rounds`, as torch.svd_lowrank
/// has it.
Singular largest_singular(const at::Tensor& matrix, int64_t count, int64_t rounds,
                          const std::optional<at::Generator>& generator = std::nullopt);

}  // namespace graft::adapters
