#include "adapters/gate.h"

#include <ATen/ATen.h>

namespace graft::adapters {
namespace {

/// A table that all rows of the batch share (positions, say) has one row: it becomes one for each.
at::Tensor one_per_row(const at::Tensor& x, int64_t batch) {
  if (x.size(0) == batch) return x;
  auto sizes = x.sizes().vec();
  sizes[0] = batch;
  return x.expand(sizes);
}

/// The column over all dimensions of x but the first.
at::Tensor over(const at::Tensor& column, const at::Tensor& x) {
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[0] = column.size(0);
  return column.view(sizes);
}

}  // namespace

Gate Gate::rows(at::Tensor index, int64_t batch) {
  Gate gate;
  gate.index_ = std::move(index);
  gate.batch_ = batch;
  return gate;
}

Gate Gate::data(at::Tensor column) {
  Gate gate;
  gate.column_ = std::move(column);
  return gate;
}

at::Tensor Gate::part(const at::Tensor& x) const {
  return index_.defined() ? one_per_row(x, batch_).index_select(0, index_) : x;
}

at::Tensor Gate::add(const at::Tensor& y, const at::Tensor& delta) const {
  if (index_.defined()) {
    const auto all = one_per_row(y, batch_);
    auto sizes = all.sizes().vec();
    sizes[0] = index_.size(0);
    return all.index_add(0, index_, delta.to(y.scalar_type()).expand(sizes));
  }
  const auto sum = (y + delta).to(y.scalar_type());
  return column_.defined() ? at::where(over(column_, sum), sum, y) : sum;
}

at::Tensor Gate::put(const at::Tensor& old, const at::Tensor& made) const {
  const auto cast = made.to(old.scalar_type());
  if (index_.defined()) return one_per_row(old, batch_).index_copy(0, index_, cast);
  return column_.defined() ? at::where(over(column_, cast), cast, old) : cast;
}

at::Tensor Gate::if_any(const at::Tensor& with, const at::Tensor& without) const {
  return column_.defined() ? at::where(column_.any(), with, without) : with;
}

}  // namespace graft::adapters
