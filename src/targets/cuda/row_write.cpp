#include "targets/cuda/row_write.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "graft/error.h"
#include "targets/cuda/module.h"
#include "targets/cuda_code/row_write.h"

namespace graft::cuda {
namespace {

const LoadedKernel& kernel_for(int64_t bytes) {
  static std::mutex guard;
  static std::map<int64_t, std::unique_ptr<const LoadedKernel>> all;
  const std::lock_guard<std::mutex> lock(guard);
  auto& found = all[bytes];
  if (!found)
    found = std::make_unique<const LoadedKernel>(compiled_once(row_write_code(bytes)), "write_rows");
  return *found;
}

RowPlan plan_of(const runtime::Device::RowWrite& rows) {
  RowPlan plan{};
  const auto dims = rows.source.dim();
  const auto dim = dims == 0 ? 0 : at::maybe_wrap_dim(rows.dim, dims);
  plan.index_step = rows.index.dim() > 0 ? rows.index.stride(0) : 0;
  for (int64_t d = dims; d-- > 0;) {
    if (rows.source.size(d) == 1) continue;
    plan.sizes[plan.dims] = static_cast<uint32_t>(rows.source.size(d));
    plan.from[plan.dims] = rows.source.stride(d);
    plan.to[plan.dims] = d == dim ? 0 : rows.into.stride(d);
    plan.places[plan.dims] = d == dim ? plan.index_step : 0;
    ++plan.dims;
  }
  plan.elements = static_cast<uint32_t>(rows.source.numel());
  plan.rows = dims == 0 ? 1 : rows.into.size(dim);
  plan.indices = rows.index.numel();
  plan.row_step = dims == 0 ? 0 : rows.into.stride(dim);
  return plan;
}

/// For more than the kernel can count: the host waits.
void write_after_a_look(const runtime::Device::RowWrite& rows) {
  if (rows.index.lt(0).logical_or(rows.index.ge(rows.into.size(rows.dim))).any().item<bool>())
    throw Error("[call] an index in the data is out of range, in " + rows.what);
  rows.into.index_copy_(rows.dim, rows.index, rows.source);
}

}  // namespace

void write_rows(std::span<const runtime::Device::RowWrite> all, runtime::RunContext& context) {
  constexpr int64_t most_elements = int64_t{1} << 31;
  if (all.size() > most_row_writes) {
    write_rows(all.first(most_row_writes), context);
    return write_rows(all.subspan(most_row_writes), context);
  }
  const bool fits = std::ranges::all_of(all, [](const auto& rows) {
    return rows.source.dim() <= most_row_dims && rows.source.numel() <= most_elements;
  });
  if (!fits) {
    for (const auto& rows : all) write_after_a_look(rows);
    return;
  }
  if (all[0].index.numel() == 0) return;
  constexpr int threads = 128, most_blocks = 1024;
  RowWrites writes{};
  int64_t elements = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    writes.to[i] = all[i].into.data_ptr();
    writes.from[i] = all[i].source.const_data_ptr();
    writes.plans[i] = plan_of(all[i]);
    elements = std::max(elements, all[i].source.numel());
  }
  const int64_t blocks = std::clamp<int64_t>((elements + threads - 1) / threads, 1, most_blocks);
  auto* failed = static_cast<void*>(context.failed());
  const auto* index = all[0].index.const_data_ptr();
  auto mark = all[0].mark;
  void* arguments[] = {&writes, &index, &failed, &mark};
  kernel_for(all[0].into.element_size())
      .launch({.blocks = blocks, .threads = threads, .blocks_y = static_cast<int64_t>(all.size())}, arguments,
              context.stream());
}

}  // namespace graft::cuda
