#include "adapters/gate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "adapters/gate_ops.h"

namespace graft::adapters {
namespace {

/// A table that all rows of the batch share (positions, say) has one row: it becomes one for each.
at::Tensor one_per_row(const at::Tensor& x, int64_t batch) {
  if (x.size(0) == batch) return x;
  auto sizes = x.sizes().vec();
  sizes[0] = batch;
  return x.expand(sizes);
}

}  // namespace

Gate Gate::rows(at::Tensor index, int64_t batch) {
  Gate gate;
  gate.index_ = std::move(index);
  gate.batch_ = batch;
  return gate;
}

Gate Gate::data(at::Tensor table, int64_t slot) {
  Gate gate;
  gate.table_ = std::move(table);
  gate.batch_ = gate.table_.size(0);
  gate.slot_ = slot;
  return gate;
}

/// The slot's column, over all dimensions of x but the first.
at::Tensor Gate::mask_over(const at::Tensor& x) const {
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[0] = batch_;
  return table_.select(1, slot_).view(sizes);
}

at::Tensor Gate::part(const at::Tensor& x) const {
  if (index_.defined()) return one_per_row(x, batch_).index_select(0, index_);
  // What other rows hold (NaN, infinity) is nothing to the gradients of this adapter's weights, and what its
  // weights hold is nothing to those rows' gradients.
  if (table_.defined() && (at::GradMode::is_enabled() || !x.is_floating_point()))
    return at::where(mask_over(x), one_per_row(x, batch_), at::zeros({}, x.options()));
  return x;
}

at::Tensor Gate::others(const at::Tensor& x) const {
  if (index_.defined()) return one_per_row(x, batch_).index_fill(0, index_, 0);
  if (!table_.defined()) return at::zeros_like(x);
  return at::where(mask_over(x), at::zeros({}, x.options()), one_per_row(x, batch_));
}

at::Tensor Gate::add(const at::Tensor& y, const at::Tensor& delta) const {
  if (index_.defined()) {
    const auto all = one_per_row(y, batch_);
    auto sizes = all.sizes().vec();
    sizes[0] = index_.size(0);
    return all.index_add(0, index_, delta.to(y.scalar_type()).expand(sizes));
  }
  if (!table_.defined()) return (y + delta).to(y.scalar_type());
  const auto all = one_per_row(y, batch_);
  // A bias has no rows of its own.
  const auto change = delta.expand(all.sizes());
  return (all + gate_keep(mask_over(all), change, table_, slot_)).to(y.scalar_type());
}

at::Tensor Gate::put(const at::Tensor& old, const at::Tensor& made) const {
  auto cast = made.to(old.scalar_type());
  if (index_.defined()) return one_per_row(old, batch_).index_copy(0, index_, cast);
  if (!table_.defined()) return cast;
  const auto all = one_per_row(old, batch_);
  return gate_put(mask_over(all), one_per_row(cast, batch_), all, table_, slot_);
}

at::Tensor Gate::if_any(const at::Tensor& with, const at::Tensor& without) const {
  return table_.defined() ? at::where(table_.select(1, slot_).any(), with, without) : with;
}

at::Tensor Gate::mean(const at::Tensor& x) const {
  if (apart_) return x.dim() > 2 ? x.flatten(1, -2).mean(1) : x;
  if (!table_.defined()) return x.reshape({-1, x.size(-1)}).mean(0);
  const auto all = one_per_row(x, batch_);
  auto rows = at::where(mask_over(all), all, at::zeros({}, all.options()));
  if (rows.dim() > 2) rows = rows.flatten(1, -2).mean(1);
  return rows.sum(0) / table_.select(1, slot_).sum().clamp_min(1);
}

}  // namespace graft::adapters
