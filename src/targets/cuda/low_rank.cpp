// graft::low_rank_add and its halves on a GPU: the launches of cuda_code/low_rank.
#include "targets/cuda_code/low_rank.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "capture/ivalue.h"
#include "runtime/low_rank_add.h"
#include "targets/cuda/matrices.h"

namespace graft::cuda {
namespace {

using Tensors = at::TensorList;
using Numbers = at::IntArrayRef;

bool is_dense_float(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat && x.is_contiguous() && is_aligned(x) && x.numel() > 0;
}

bool is_table(const at::Tensor& table) { return table.scalar_type() == at::kBool && table.size(0) > 0; }

/// A matrix that kernels read or write as it lies.
bool is_large(const at::Tensor& x) {
  return has_code(x.scalar_type()) && x.numel() > 0 && lies_along_rows(x) &&
         std::max(x.size(0), x.size(1)) <= most_rows_or_columns;
}

bool is_between(const at::Tensor& t) { return t.scalar_type() == at::kFloat && t.stride(1) == 1; }

LowRankChoice choice_of(const at::Tensor& table, int64_t rows) {
  return {.table = table.const_data_ptr<bool>(),
          .steps = {table.stride(0), table.stride(1)},
          .each = static_cast<int32_t>(rows / table.size(0))};
}

/// Adds an adapter, but for its A and B and its columns of y. Its number.
int32_t add(LowRankAdapters& all, int64_t slot, int64_t rank, int64_t first) {
  all.slot[all.count] = static_cast<int32_t>(slot);
  all.rank[all.count] = static_cast<int32_t>(rank);
  all.first[all.count] = static_cast<int32_t>(first);
  return all.count++;
}

/// Layers that read the same x: in how many of them one adapter is.
int64_t layers_of(const LowRankAdapters& all) {
  return std::count(all.slot, all.slot + all.count, all.slot[0]);
}

void launch_lower(const at::Tensor& t, const at::Tensor& x, LowRankAdapters& adapters, int64_t highest_rank,
                  LowRankChoice& choice) {
  static MatrixKernels kernels("lower", lower_function);
  constexpr int64_t tile = 16, most_columns = 48;
  const auto columns = std::min(blocks_of(highest_rank, tile) * tile, most_columns);
  NarrowKind kind{to_ir(x.scalar_type()), Along::large, static_cast<int>(columns)};
  divide_dots(kind, x.size(0), x.size(1), layers_of(adapters), division());
  const auto shape = dots_shape(kind);
  NarrowPlan plan{.rows = x.size(0),
                  .columns = x.size(1),
                  .narrow = 0,
                  .step = x.stride(0),
                  .small = {1, x.size(1)},
                  .other = {t.stride(0), 1},
                  .added = 0};
  auto* to = t.data_ptr();
  const auto* from = x.const_data_ptr();
  void* arguments[] = {&to, &from, &adapters, &choice, &plan};
  kernels.get(kind).launch({.blocks = kind.slices,
                            .threads = shape.threads,
                            .blocks_y = blocks_of(plan.rows, shape.rows),
                            .blocks_z = blocks_of(highest_rank, shape.narrow) * adapters.count},
                           arguments, stream_of(x));
}

at::Tensor& lower(const at::Tensor& x, Tensors a, Tensors scaling, const at::Tensor& table, Numbers slots,
                  at::Tensor& t) {
  const bool fits = has_matrix_units() && is_large(x) && x.size(0) <= most_rows_in_blocks && is_between(t) &&
                    is_table(table) && std::ranges::all_of(a, is_dense_float) &&
                    std::ranges::all_of(scaling, [](const at::Tensor& s) {
                      return s.scalar_type() == at::kFloat && s.numel() == 1;
                    });
  if (!fits) return runtime::low_rank_lower_into(x, a, scaling, table, slots, t);
  auto choice = choice_of(table, x.size(0));
  int64_t first = 0;
  for (size_t i = 0; i < a.size();) {
    LowRankAdapters adapters{};
    int64_t highest_rank = 0;
    for (; i < a.size() && adapters.count < most_adapters; ++i) {
      const auto rank = a[i].size(0);
      const auto number = add(adapters, slots[i], rank, first);
      adapters.a[number] = a[i].const_data_ptr<float>();
      adapters.scaling[number] = scaling[i].const_data_ptr<float>();
      highest_rank = std::max(highest_rank, rank);
      first += rank;
    }
    launch_lower(t, x, adapters, highest_rank, choice);
  }
  return t;
}

void launch_lift(const at::Tensor& out, const at::Tensor& y, const at::Tensor& t, LowRankAdapters& adapters,
                 LowRankChoice& choice) {
  static MatrixKernels kernels("lift", lift_function);
  constexpr int four = 4;
  const bool in_fours = std::all_of(adapters.rank, adapters.rank + adapters.count,
                                    [](int32_t rank) { return rank % four == 0; });
  const NarrowKind kind{.large = to_ir(out.scalar_type()),
                        .small = in_fours ? Along::narrow : Along::neither};
  const auto shape = spread_shape();
  NarrowPlan plan{.rows = out.size(0),
                  .columns = out.size(1),
                  .narrow = 0,
                  .step = out.stride(0),
                  .small = {0, 1},
                  .other = {t.stride(0), 1},
                  .added = y.stride(0)};
  auto* to = out.data_ptr();
  const auto *more = y.const_data_ptr(), *left = t.const_data_ptr();
  void* arguments[] = {&to, &more, &left, &adapters, &choice, &plan};
  kernels.get(kind).launch({.blocks = blocks_of(plan.rows, shape.rows),
                            .threads = shape.threads,
                            .blocks_y = blocks_of(plan.columns, shape.columns)},
                           arguments, stream_of(out));
}

/// Whether each adapter's columns of y are those of whole blocks, but for the last of y.
bool are_whole_blocks(Numbers places, Tensors b, int64_t columns) {
  for (size_t i = 0; i < places.size(); ++i) {
    const auto end = places[i] + b[i].size(0);
    if (places[i] % spread_columns != 0 || (end % spread_columns != 0 && end != columns)) return false;
  }
  return true;
}

at::Tensor& lift(const at::Tensor& y, const at::Tensor& t, Tensors b, const at::Tensor& table, Numbers slots,
                 Numbers columns, Numbers places, at::Tensor& out);

/// Layer by layer, where a block would have columns of two.
at::Tensor& lift_apart(const at::Tensor& y, const at::Tensor& t, Tensors b, const at::Tensor& table,
                       Numbers slots, Numbers columns, Numbers places, at::Tensor& out) {
  if (out.const_data_ptr() != y.const_data_ptr()) out.copy_(y);
  for (size_t i = 0, count = 0; i < b.size(); i += count) {
    for (count = 1; i + count < b.size() && places[i + count] == places[i];) ++count;
    auto layer = out.narrow(1, places[i], b[i].size(0));
    lift(layer, t, b.slice(i, count), table, slots.slice(i, count), columns.slice(i, count), {}, layer);
  }
  return out;
}

at::Tensor& lift(const at::Tensor& y, const at::Tensor& t, Tensors b, const at::Tensor& table, Numbers slots,
                 Numbers columns, Numbers places, at::Tensor& out) {
  if (!are_whole_blocks(places, b, y.size(1))) return lift_apart(y, t, b, table, slots, columns, places, out);
  const bool fits = has_matrix_units() && is_large(y) && is_large(out) && is_between(t) && is_table(table) &&
                    y.scalar_type() == out.scalar_type() && std::ranges::all_of(b, is_dense_float) &&
                    blocks_of(y.size(1), spread_columns) <= most_blocks;
  if (!fits) return runtime::low_rank_lift_into(y, t, b, table, slots, columns, places, out);
  auto choice = choice_of(table, y.size(0));
  auto sum = y;  // rounded more than once where there are more adapters than a launch takes
  for (size_t i = 0; i < b.size(); sum = out) {
    LowRankAdapters adapters{};
    for (; i < b.size() && adapters.count < most_adapters; ++i) {
      const auto rank = b[i].size(1), place = places.empty() ? 0 : places[i];
      const auto number = add(adapters, slots[i], rank, columns[i]);
      adapters.b[number] = b[i].const_data_ptr<float>();
      adapters.begin[number] = static_cast<int32_t>(place);
      adapters.end[number] = static_cast<int32_t>(place + b[i].size(0));
    }
    launch_lift(out, sum, t, adapters, choice);
  }
  return out;
}

at::Tensor& low_rank_add(const at::Tensor& y, const at::Tensor& x, Tensors a, Tensors b, Tensors scaling,
                         const at::Tensor& table, Numbers slots, Numbers places, at::Tensor& out) {
  const auto columns = runtime::columns_between(a);
  auto t = at::empty({x.size(0), columns.back() + a.back().size(0)}, a[0].options());
  lower(x, a, scaling, table, slots, t);
  return lift(y, t, b, table, slots, columns, places, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(graft, CUDA, m) {
  m.impl("low_rank_add.out", low_rank_add);
  m.impl("low_rank_lower.out", lower);
  m.impl("low_rank_lift.out", lift);
}

}  // namespace graft::cuda
