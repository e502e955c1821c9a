#include "runtime/side_by_side.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace graft::runtime {

bool follows(const at::Tensor& matrix, const at::Tensor& next) {
  return matrix.dim() == 2 && next.dim() == 2 && matrix.is_contiguous() && next.is_contiguous() &&
         matrix.size(1) == next.size(1) && matrix.scalar_type() == next.scalar_type() &&
         matrix.is_conj() == next.is_conj() && matrix.is_neg() == next.is_neg() && matrix.has_storage() &&
         next.has_storage() && matrix.is_alias_of(next) &&
         matrix.storage_offset() + matrix.numel() == next.storage_offset();
}

at::Tensor side_by_side(at::TensorList matrices) {
  int64_t rows = matrices[0].size(0);
  for (size_t i = 1; i < matrices.size(); ++i) {
    if (!follows(matrices[i - 1], matrices[i])) return at::cat(matrices);
    rows += matrices[i].size(0);
  }
  const auto width = matrices[0].size(1);
  return matrices[0].as_strided({rows, width}, {width, 1});
}

TORCH_LIBRARY_FRAGMENT(graft, m) { m.def("side_by_side(Tensor[] tensors) -> Tensor"); }

TORCH_LIBRARY_IMPL(graft, CompositeExplicitAutograd, m) { m.impl("side_by_side", side_by_side); }

}  // namespace graft::runtime
