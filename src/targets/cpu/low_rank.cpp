// The sum of LoRA adapters on the rows that chose them (adapters/low_rank.h), for the CPU.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <vector>

#include "runtime/low_rank_add.h"
#include "targets/cpu/torch_threads.h"

namespace graft::cpu {
namespace {

using Tensors = at::TensorList;

/// Rows that follow each other and have chosen the same.
struct Run {
  int64_t first, count;
  std::vector<size_t> adapters;
};

std::vector<Run> runs_of(const at::Tensor& table, at::IntArrayRef slots, int64_t rows) {
  const auto batch = table.size(0), each = rows / batch;
  const auto chosen = table.accessor<bool, 2>();
  std::vector<Run> runs;
  for (int64_t row = 0; row < batch; ++row) {
    Run run{row * each, each, {}};
    for (size_t i = 0; i < slots.size(); ++i)
      if (chosen[row][slots[i]]) run.adapters.push_back(i);
    if (run.adapters.empty()) continue;
    if (!runs.empty() && runs.back().first + runs.back().count == run.first &&
        runs.back().adapters == run.adapters)
      runs.back().count += each;
    else
      runs.push_back(std::move(run));
  }
  return runs;
}

/// y += scaling B A x on some rows; all of it on this thread.
void add_rows(const at::Tensor& y, const at::Tensor& x, const at::Tensor& a, const at::Tensor& b,
              float scaling) {
  thread_local std::vector<float> between;  // grows to the largest that this thread has seen, and stays
  const auto rank = a.size(0), rows = x.size(0);
  if (between.size() < static_cast<size_t>(rank * rows)) between.resize(static_cast<size_t>(rank * rows));
  // Transposed, as BLAS takes it without another copy.
  const auto low = at::from_blob(between.data(), {rank, rows}, at::kFloat);
  auto down = low.t(), sum = y.t();
  at::mm_out(down, x, a.t());
  at::addmm_out(sum, sum, b, low, 1, scaling);
}

/// Each thread takes its share of the rows that are in use, so that the products of a thread are small and
/// what lies between A and B stays in its cache.
void add_runs(const at::Tensor& y, const at::Tensor& x, Tensors a, Tensors b, Tensors scaling,
              const std::vector<Run>& runs) {
  constexpr int64_t kBlock = 256, kGrain = 16;
  int64_t in_use = 0;
  for (const auto& run : runs) in_use += run.count;
  if (in_use == 0) return;
  std::exception_ptr failed;
  std::mutex guard;
  parallel_for(in_use, kGrain, [&](int64_t begin, int64_t end) {
    try {
      const at::AutoDispatchBelowADInplaceOrView plain;  // of this thread
      int64_t passed = 0;
      for (const auto& run : runs) {
        const int64_t from = std::max(begin - passed, int64_t{0}), to = std::min(end - passed, run.count);
        for (int64_t row = from; row < to; row += kBlock) {
          const int64_t first = run.first + row, count = std::min(kBlock, to - row);
          for (const size_t i : run.adapters)
            add_rows(y.narrow(0, first, count), x.narrow(0, first, count), a[i], b[i],
                     *scaling[i].const_data_ptr<float>());
        }
        passed += run.count;
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(guard);
      failed = std::current_exception();
    }
  });
  if (failed) std::rethrow_exception(failed);
}

at::Tensor& low_rank_add(const at::Tensor& y, const at::Tensor& x, Tensors a, Tensors b, Tensors scaling,
                         const at::Tensor& table, at::IntArrayRef slots, at::IntArrayRef places,
                         at::Tensor& out) {
  TORCH_CHECK(x.dim() == 2 && y.dim() == 2 && x.size(0) == y.size(0) && out.sizes() == y.sizes() &&
                  out.is_contiguous() && table.dim() == 2 && table.size(0) > 0 &&
                  x.size(0) % table.size(0) == 0,
              "graft::low_rank_add: ", x.sizes(), " and ", y.sizes(), " for a table of ", table.sizes());
  if (out.numel() == 0) return out;
  // Products side by side are a GPU's.
  if (!places.empty()) return runtime::low_rank_add_into(y, x, a, b, scaling, table, slots, places, out);
  const bool in_place = out.const_data_ptr() == y.const_data_ptr() && out.strides() == y.strides();
  if (!in_place) out.copy_(y);
  add_runs(out, x.contiguous(), a, b, scaling, runs_of(table, slots, x.size(0)));
  return out;
}

TORCH_LIBRARY_IMPL(graft, CPU, m) { m.impl("low_rank_add.out", low_rank_add); }

}  // namespace
}  // namespace graft::cpu
