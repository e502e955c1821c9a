#include "adapters/low_rank.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace graft::adapters {
namespace {

using Tensors = at::TensorList;
using Apart = at::Tensor(const at::Tensor&, const at::Tensor&, Tensors, Tensors, Tensors, const at::Tensor&,
                         at::IntArrayRef);
using Into = at::Tensor&(const at::Tensor&, const at::Tensor&, Tensors, Tensors, Tensors, const at::Tensor&,
                         at::IntArrayRef, at::Tensor&);

/// By operators that any device has; the CPU has a kernel of its own (targets/cpu/low_rank.cpp).
at::Tensor& add_plainly(const at::Tensor& y, const at::Tensor& x, Tensors a, Tensors b, Tensors scaling,
                        const at::Tensor& table, at::IntArrayRef slots, at::Tensor& out) {
  const auto each = x.size(0) / table.size(0);
  auto sum = y;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto mask = table.select(1, slots[i]).repeat_interleave(each).unsqueeze(1);
    const auto low = at::where(mask, at::linear(x, a[i]) * scaling[i], at::zeros({}, x.options()));
    sum = sum + at::linear(low, b[i]);
  }
  return out.copy_(sum);
}

at::Tensor add_apart(const at::Tensor& y, const at::Tensor& x, Tensors a, Tensors b, Tensors scaling,
                     const at::Tensor& table, at::IntArrayRef slots) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("graft::low_rank_add", "out").typed<Into>();
  auto out = at::empty_like(y, at::MemoryFormat::Contiguous);
  return op.call(y, x, a, b, scaling, table, slots, out);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(graft, m) {
  m.def(
      "low_rank_add(Tensor self, Tensor x, Tensor[] a, Tensor[] b, Tensor[] scaling, Tensor table, "
      "int[] slots) -> Tensor");
  m.def(
      "low_rank_add.out(Tensor self, Tensor x, Tensor[] a, Tensor[] b, Tensor[] scaling, Tensor table, "
      "int[] slots, *, Tensor(a!) out) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(graft, CompositeExplicitAutograd, m) {
  m.impl("low_rank_add", add_apart);
  m.impl("low_rank_add.out", add_plainly);
}

at::Tensor low_rank_add(const at::Tensor& y, const at::Tensor& x, const LowRank& adapters,
                        const at::Tensor& table) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("graft::low_rank_add", "").typed<Apart>();
  return op.call(y, x, adapters.a, adapters.b, adapters.scaling, table, adapters.slots);
}

}  // namespace graft::adapters
