// Rotations in blocks, which OFT and BOFT put before a layer, and PSOFT within one.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

namespace graft::adapters {

/// (I - Q) (I + Q)^-1 for skew-symmetric Q [n, size, size]: exactly orthogonal. Half precision is computed in
/// float32.
at::Tensor cayley(const at::Tensor& skew);

/// Cayley's transform of -Q with the inverse as a series of so many terms, PEFT's way: I + 2 Q + 2 Q^2 + ...
/// + Q^n.
at::Tensor cayley_series(const at::Tensor& skew, int64_t terms);

/// The last dimension of x in pieces of `size`, each times its own of the blocks [n, size, size], or all
/// times the one there is.
at::Tensor rotate_blocks(const at::Tensor& x, const at::Tensor& blocks);

/// An image with the channels of each of its points turned. Contiguous, as images are here: where a gate
/// selects between the two, the layer below must not see another layout and round differently.
at::Tensor rotate_channels(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& rotate);

}  // namespace graft::adapters
