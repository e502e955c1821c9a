// The last judge: whether two results differ by no more than rounding explains, as runs of the graph in
// double precision show it.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace graft::verify {

/// Whether `got` and `want` differ by rounding alone: `plain` and `precise` are the captured graph's own
/// results, over ATen in its precision and in double, `perturbed` those of runs with rounding put in (see
/// DoublePrecisionRuns). Eager must be as near to `plain` as rounding allows, else the capture is wrong and
/// no precision excuses it; `got` must be about as near to `precise` as the others are, as a whole and row by
/// row; the nearer, the coarser what the graph is `computed_in` (coarsest_dtype). Where ATen's kernels give
/// NaN or infinity and the exact result is another, that one is right, too. With `may_overflow` (see
/// DoublePrecisionRuns) places where either is NaN or infinite are not compared. A whole number or a flag
/// must be one that some run gave.
bool is_rounding_noise(const at::Tensor& got, const at::Tensor& want, const at::Tensor& plain,
                       const at::Tensor& precise, const std::vector<at::Tensor>& perturbed,
                       at::ScalarType computed_in, bool may_overflow = false);

}  // namespace graft::verify
