#include "runtime/assumption.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace graft::runtime {
namespace {

void assume(const at::Tensor& flag, bool expected) {
  const bool found = flag.is_cpu() ? *flag.const_data_ptr<bool>() : flag.item<bool>();
  if (found != expected)
    throw AssumptionFailed(
        "[runtime] a comparison on the host gives another answer than when the function was captured");
}

/// Where no element is as large as the length, the length is that of the result.
at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights, int64_t length) {
  auto made = at::bincount(self, weights, length);
  if (made.size(0) != length)
    throw AssumptionFailed("[runtime] bincount has a value that is not below its minlength");
  return made;
}

TORCH_LIBRARY_FRAGMENT(graft, m) {
  m.def("assume(Tensor flag, bool expected) -> ()");
  m.def("bincount(Tensor self, Tensor? weights, int length) -> Tensor");
}

TORCH_LIBRARY_IMPL(graft, CompositeExplicitAutograd, m) {
  m.impl("assume", assume);
  m.impl("bincount", bincount);
}

}  // namespace
}  // namespace graft::runtime
