// graft::float_mm on a GPU: the launches of cuda_code/narrow_products.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <torch/library.h>

#include <algorithm>

#include "capture/ivalue.h"
#include "runtime/float_mm.h"
#include "targets/cuda/matrices.h"

namespace graft::cuda {
namespace {

using Added = std::optional<at::Tensor>;

bool is_float(const at::Tensor& x) { return x.scalar_type() == at::kFloat; }

/// `small` [large side, short side].
Along along_of(const at::Tensor& small) {
  constexpr int64_t at_once = 4;
  if (!is_aligned(small)) return Along::neither;
  if (small.stride(0) == 1 && small.stride(1) % at_once == 0) return Along::large;
  if (small.stride(1) == 1 && small.stride(0) % at_once == 0 && small.size(1) % at_once == 0)
    return Along::narrow;
  return Along::neither;
}

/// The plan of x, what is small and has a row for each of x's columns or rows, and what is as large as that.
NarrowPlan plan_of(const at::Tensor& x, const at::Tensor& small, const at::Tensor& other) {
  return {.rows = x.size(0),
          .columns = x.size(1),
          .narrow = small.size(1),
          .step = x.stride(0),
          .small = {small.stride(0), small.stride(1)},
          .other = {other.stride(0), other.stride(1)},
          .added = 0};
}

void dots(const at::Tensor& out, const at::Tensor& x, const at::Tensor& w) {
  static MatrixKernels kernels("dots", dots_function);
  auto plan = plan_of(x, w, out);
  // The more columns a block has, the less often x is read.
  constexpr int64_t tile = 16, most_columns = 48;
  const auto columns = std::min(blocks_of(plan.narrow, tile) * tile, most_columns);
  NarrowKind kind{to_ir(x.scalar_type()), along_of(w), static_cast<int>(columns)};
  divide_dots(kind, plan.rows, plan.columns, blocks_of(plan.narrow, columns), division());
  const auto shape = dots_shape(kind);
  auto* to = out.data_ptr();
  const auto *from = x.const_data_ptr(), *small = w.const_data_ptr();
  void* arguments[] = {&to, &from, &small, &plan};
  kernels.get(kind).launch({.blocks = kind.slices,
                            .threads = shape.threads,
                            .blocks_y = blocks_of(plan.rows, shape.rows),
                            .blocks_z = blocks_of(plan.narrow, shape.narrow)},
                           arguments, stream_of(x));
}

void sums(const at::Tensor& out, const at::Tensor& x, const at::Tensor& t) {
  static MatrixKernels kernels("sums", sums_function);
  auto plan = plan_of(x, t, out);
  // All of the GPU is to have something to do.
  constexpr int few_columns = 32, many_columns = 64;
  const bool many = blocks_of(plan.columns, many_columns) >=
                    at::cuda::getCurrentDeviceProperties()->multiProcessorCount * 3 / 4;
  const NarrowKind kind{to_ir(x.scalar_type()), Along::neither, many ? many_columns : few_columns};
  const auto shape = sums_shape(kind);
  auto* to = out.data_ptr();
  const auto *from = x.const_data_ptr(), *small = t.const_data_ptr();
  void* arguments[] = {&to, &from, &small, &plan};
  kernels.get(kind).launch({.blocks = blocks_of(plan.columns, shape.columns),
                            .threads = shape.threads,
                            .blocks_y = blocks_of(plan.narrow, shape.narrow)},
                           arguments, stream_of(x));
}

void spread(const at::Tensor& out, const Added& added, const at::Tensor& t, const at::Tensor& b) {
  static MatrixKernels kernels("spread", spread_function);
  const auto small = b.t();
  auto plan = plan_of(out, small, t);
  if (added) plan.added = added->stride(0);
  const NarrowKind kind{.large = to_ir(out.scalar_type()),
                        .small = along_of(small) == Along::narrow ? Along::narrow : Along::neither};
  const auto shape = spread_shape();
  auto* to = out.data_ptr();
  const auto *more = added ? added->const_data_ptr() : nullptr, *left = t.const_data_ptr(),
             *right = b.const_data_ptr();
  void* arguments[] = {&to, &more, &left, &right, &plan};
  kernels.get(kind).launch({.blocks = blocks_of(plan.rows, shape.rows),
                            .threads = shape.threads,
                            .blocks_y = blocks_of(plan.columns, shape.columns)},
                           arguments, stream_of(out));
}

/// x of any dtype that there is code for, w in floats, [large, short]: into out [large, short].
bool multiply_large(const at::Tensor& out, const at::Tensor& x, const at::Tensor& w) {
  if (!has_code(x.scalar_type()) || !is_float(w)) return false;
  if (lies_along_rows(x) && x.size(0) <= most_rows_in_blocks) {
    dots(out, x, w);
  } else if (lies_along_rows(x.t())) {
    sums(out, x.t(), w);
  } else {
    return false;
  }
  return true;
}

/// False where there is no kernel for it.
bool multiply_by_kernel(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const Added& added) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1), least = std::min({m, n, k});
  if (least == 0 || std::max({m, n, k}) > most_rows_or_columns || !has_matrix_units()) return false;
  const auto dtype = out.scalar_type();
  if (least == k) {
    const bool fits = is_float(a) && is_float(b) && lies_along_rows(out) && has_code(dtype) &&
                      (!added || (added->scalar_type() == dtype && lies_along_rows(*added))) &&
                      blocks_of(n, spread_columns) <= most_blocks;
    if (fits) spread(out, added, a, b);
    return fits;
  }
  if (added || dtype != at::kFloat) return false;
  return least == n ? multiply_large(out, a, b) : multiply_large(out.t(), b.t(), a.t());
}

at::Tensor& multiply_into(const at::Tensor& a, const at::Tensor& b, const Added& added, at::ScalarType dtype,
                          at::Tensor& out) {
  if (!multiply_by_kernel(out, a, b, added)) runtime::float_mm_into(a, b, added, dtype, out);
  return out;
}

at::Tensor multiply(const at::Tensor& a, const at::Tensor& b, const Added& added, at::ScalarType dtype) {
  auto out = at::empty({a.size(0), b.size(1)}, a.options().dtype(dtype));
  return multiply_into(a, b, added, dtype, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(graft, CUDA, m) {
  m.impl("float_mm", multiply);
  m.impl("float_mm.out", multiply_into);
}

}  // namespace graft::cuda
