#include "runtime/low_rank_add.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <numeric>

namespace graft::runtime {
namespace {

using Tensors = at::TensorList;
using Numbers = at::IntArrayRef;

/// Of the rows that chose the slot, of so many.
at::Tensor mask_of(const at::Tensor& table, int64_t slot, int64_t rows) {
  return table.select(1, slot).repeat_interleave(rows / table.size(0)).unsqueeze(1);
}

at::Tensor chosen(const at::Tensor& mask, const at::Tensor& value) {
  return at::where(mask, value, at::zeros({}, value.options()));
}

int64_t ranks_of(Tensors a) {
  return std::accumulate(a.begin(), a.end(), int64_t{0},
                         [](int64_t sum, const at::Tensor& each) { return sum + each.size(0); });
}

}  // namespace

at::Tensor& low_rank_lower_into(const at::Tensor& x, Tensors a, Tensors scaling, const at::Tensor& table,
                                Numbers slots, at::Tensor& out) {
  int64_t first = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto low = at::linear(x.to(a[i].scalar_type()), a[i]) * scaling[i];
    out.narrow(1, first, a[i].size(0)).copy_(chosen(mask_of(table, slots[i], x.size(0)), low));
    first += a[i].size(0);
  }
  return out;
}

at::Tensor& low_rank_lift_into(const at::Tensor& y, const at::Tensor& t, Tensors b, const at::Tensor& table,
                               Numbers slots, Numbers columns, Numbers places, at::Tensor& out) {
  auto sum = y.to(at::result_type(y, t), /*non_blocking=*/false, /*copy=*/true);
  for (size_t i = 0; i < b.size(); ++i) {
    const auto mask = mask_of(table, slots[i], y.size(0));
    const auto low = chosen(mask, t.narrow(1, columns[i], b[i].size(1)));
    sum.narrow(1, places.empty() ? 0 : places[i], b[i].size(0)).add_(chosen(mask, at::linear(low, b[i])));
  }
  return out.copy_(sum);
}

std::vector<int64_t> columns_between(Tensors a) {
  std::vector<int64_t> columns;
  int64_t width = 0;
  for (const auto& each : a) {
    columns.push_back(width);
    width += each.size(0);
  }
  return columns;
}

at::Tensor& low_rank_add_into(const at::Tensor& y, const at::Tensor& x, Tensors a, Tensors b, Tensors scaling,
                              const at::Tensor& table, Numbers slots, Numbers places, at::Tensor& out) {
  auto t = at::empty({x.size(0), ranks_of(a)}, a[0].options());
  low_rank_lower_into(x, a, scaling, table, slots, t);
  return low_rank_lift_into(y, t, b, table, slots, columns_between(a), places, out);
}

namespace {

template <class Signature>
auto into(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "out").typed<Signature>();
}

at::Tensor low_rank_add(const at::Tensor& y, const at::Tensor& x, Tensors a, Tensors b, Tensors scaling,
                        const at::Tensor& table, Numbers slots, Numbers places) {
  static const auto op = into<decltype(low_rank_add_into)>("graft::low_rank_add");
  auto out = at::empty_like(y, at::MemoryFormat::Contiguous);
  return op.call(y, x, a, b, scaling, table, slots, places, out);
}

at::Tensor low_rank_lower(const at::Tensor& x, Tensors a, Tensors scaling, const at::Tensor& table,
                          Numbers slots) {
  static const auto op = into<decltype(low_rank_lower_into)>("graft::low_rank_lower");
  auto out = at::empty({x.size(0), ranks_of(a)}, a[0].options());
  return op.call(x, a, scaling, table, slots, out);
}

at::Tensor low_rank_lift(const at::Tensor& y, const at::Tensor& t, Tensors b, const at::Tensor& table,
                         Numbers slots, Numbers columns, Numbers places) {
  static const auto op = into<decltype(low_rank_lift_into)>("graft::low_rank_lift");
  auto out = at::empty_like(y, at::MemoryFormat::Contiguous);
  return op.call(y, t, b, table, slots, columns, places, out);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(graft, m) {
  m.def(
      "low_rank_add(Tensor self, Tensor x, Tensor[] a, Tensor[] b, Tensor[] scaling, Tensor table, "
      "int[] slots, int[] places=[]) -> Tensor");
  m.def(
      "low_rank_add.out(Tensor self, Tensor x, Tensor[] a, Tensor[] b, Tensor[] scaling, Tensor table, "
      "int[] slots, int[] places=[], *, Tensor(a!) out) -> Tensor(a!)");
  m.def("low_rank_lower(Tensor x, Tensor[] a, Tensor[] scaling, Tensor table, int[] slots) -> Tensor");
  m.def(
      "low_rank_lower.out(Tensor x, Tensor[] a, Tensor[] scaling, Tensor table, int[] slots, *, "
      "Tensor(a!) out) -> Tensor(a!)");
  m.def(
      "low_rank_lift(Tensor self, Tensor t, Tensor[] b, Tensor table, int[] slots, int[] columns, int[] "
      "places=[]) -> Tensor");
  m.def(
      "low_rank_lift.out(Tensor self, Tensor t, Tensor[] b, Tensor table, int[] slots, int[] columns, int[] "
      "places=[], *, Tensor(a!) out) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(graft, CompositeExplicitAutograd, m) {
  m.impl("low_rank_add", low_rank_add);
  m.impl("low_rank_add.out", low_rank_add_into);
  m.impl("low_rank_lower", low_rank_lower);
  m.impl("low_rank_lower.out", low_rank_lower_into);
  m.impl("low_rank_lift", low_rank_lift);
  m.impl("low_rank_lift.out", low_rank_lift_into);
}

}  // namespace graft::runtime
