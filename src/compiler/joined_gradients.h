// Gradients that a backward pass gives in one memory: autograd keeps one that nobody else has as it is, and
// adds to it in place.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace graft {

/// Copies those that overlap with one before them. Parts of one tensor that do not overlap stay, as in eager
/// code: of what a cat was made of, or of chunks. So does the same tensor twice, which has two owners.
void part_gradients(std::vector<at::Tensor>& gradients);

}  // namespace graft
