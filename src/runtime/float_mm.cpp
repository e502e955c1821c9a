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

TORCH_LIBRARY_FRAGMENT(graft, m) {
  m.def("float_mm(Tensor a, Tensor b, Tensor? added=None, *, ScalarType dtype) -> Tensor");
}

TORCH_LIBRARY_IMPL(graft, CompositeExplicitAutograd, m) { m.impl("float_mm", float_mm); }

}  // namespace graft::runtime
