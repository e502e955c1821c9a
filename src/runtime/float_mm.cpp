// Over ATen: what the operator means, for every target that has no kernel for it.
#include "runtime/float_mm.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace graft::runtime {

at::Tensor float_mm(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& added,
                    at::ScalarType dtype) {
  auto product = at::mm(a.to(at::kFloat), b.to(at::kFloat));
  if (added) product = added->to(at::kFloat) + product;
  return product.to(dtype);
}

at::Tensor& float_mm_into(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& added,
                          at::ScalarType dtype, at::Tensor& out) {
  return out.copy_(float_mm(a, b, added, dtype));
}

TORCH_LIBRARY_FRAGMENT(graft, m) {
  m.def("float_mm(Tensor a, Tensor b, Tensor? added=None, *, ScalarType dtype) -> Tensor");
  m.def(
      "float_mm.out(Tensor a, Tensor b, Tensor? added=None, *, ScalarType dtype, Tensor(a!) out) -> "
      "Tensor(a!)");
}

TORCH_LIBRARY_IMPL(graft, CompositeExplicitAutograd, m) {
  m.impl("float_mm", float_mm);
  m.impl("float_mm.out", float_mm_into);
}

}  // namespace graft::runtime
