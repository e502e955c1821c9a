// Matrices that follow each other in memory are one matrix.
#pragma once
#include <ATen/core/Tensor.h>

namespace graft::runtime {

/// Whether both are row-major matrices of one kind and width in one storage, and `next` begins where
/// `matrix` ends.
bool follows(const at::Tensor& matrix, const at::Tensor& next);

/// Their rows, one matrix below the other: over their own memory where each follows the one before, else a
/// copy. (The operator graft::side_by_side.)
at::Tensor side_by_side(at::TensorList matrices);

}  // namespace graft::runtime
