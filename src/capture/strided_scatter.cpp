// graft::strided_scatter: a tensor with some of its elements replaced, at places counted from its own first
// element. (aten::as_strided_scatter counts from the start of the storage, and an argument of another call
// may begin elsewhere in its own.)
#include <torch/library.h>

#include "capture/ivalue.h"

namespace graft {
namespace {

at::Tensor strided_scatter(const at::Tensor& self, const at::Tensor& src, at::IntArrayRef size,
                           at::IntArrayRef stride, int64_t offset) {
  const auto made = copy_as_it_lies(self);
  made.as_strided(size, stride, made.storage_offset() + offset).copy_(src);
  return made;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(graft, m) {
  m.def("strided_scatter(Tensor self, Tensor src, int[] size, int[] stride, int offset) -> Tensor");
}
TORCH_LIBRARY_IMPL(graft, CompositeExplicitAutograd, m) { m.impl("strided_scatter", strided_scatter); }

}  // namespace graft
