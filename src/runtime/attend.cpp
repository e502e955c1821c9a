// Over ATen: what the operator means, for every target that has no kernel for it.
#include "runtime/attend.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace graft::runtime {

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const std::optional<at::Tensor>& bias, double scale, at::IntArrayRef strides) {
  const int64_t times = query.size(1) / key.size(1);
  const auto wide = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto all = [&](const at::Tensor& x) { return x.repeat_interleave(times, 1).to(wide); };
  auto scores = at::matmul(query.to(wide) * scale, all(key).transpose(2, 3));
  if (bias) scores = scores + bias->to(wide);
  const auto sees_a_key = scores.isneginf().logical_not().any(-1, /*keepdim=*/true);
  const auto weights = at::where(sees_a_key, scores.softmax(-1), at::zeros({}, scores.options()));
  const auto made = at::empty_strided(query.sizes(), strides, query.options());
  return made.copy_(at::matmul(weights, all(value)));
}

TORCH_LIBRARY_FRAGMENT(graft, m) {
  m.def(
      "attend(Tensor query, Tensor key, Tensor value, Tensor? bias=None, *, float scale, int[] strides) -> "
      "Tensor");
}

TORCH_LIBRARY_IMPL(graft, CompositeExplicitAutograd, m) { m.impl("attend", attend); }

}  // namespace graft::runtime
