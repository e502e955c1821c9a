// graft::float_mm on a GPU: the launches of cuda_code/narrow_products.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "capture/ivalue.h"
#include "runtime/float_mm.h"
#include "targets/cuda/module.h"
#include "targets/cuda_code/narrow_products.h"

namespace graft::cuda {
namespace {

using runtime::float_mm;
using Added = std::optional<at::Tensor>;

/// Of one text, which is compiled when it is asked for first.
class Kernels {
 public:
  using Text = std::string (*)(const NarrowKind&);
  explicit Kernels(Text text) : text_(text) {}
  const LoadedKernel& get(const NarrowKind& kind, const char* name) {
    const std::lock_guard<std::mutex> lock(guard_);
    auto& found = all_[{kind, name}];
    if (!found) found = std::make_unique<const LoadedKernel>(compiled_once(narrow_code(text_(kind))), name);
    return *found;
  }

 private:
  Text text_;
  std::mutex guard_;
  std::map<std::pair<NarrowKind, std::string>, std::unique_ptr<const LoadedKernel>> all_;
};

void* stream_of(const at::Tensor& x) {
  return static_cast<void*>(at::cuda::getCurrentCUDAStream(x.device().index()).stream());
}

int64_t blocks_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

bool is_aligned(const at::Tensor& x) { return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0; }

/// Rows of whole groups, each of which can be read at once.
bool lies_along_rows(const at::Tensor& x) {
  return x.stride(1) == 1 && x.size(1) % narrow_group == 0 && x.stride(0) % narrow_group == 0 &&
         x.stride(0) >= x.size(1) && is_aligned(x);
}

bool is_small_float(const at::Tensor& x) { return x.scalar_type() == at::kFloat; }

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

Shape shape_for(const NarrowShape& of_block, int64_t blocks, int64_t blocks_y) {
  return {.blocks = blocks, .threads = of_block.threads, .blocks_y = blocks_y};
}

void dots(const at::Tensor& out, const at::Tensor& x, const at::Tensor& w) {
  static Kernels kernels(dots_function);
  auto plan = plan_of(x, w, out);
  // The more columns a block has, the less often x is read.
  constexpr int64_t tile = 16, most_columns = 48;
  const auto columns = std::min(blocks_of(plan.narrow, tile) * tile, most_columns);
  const NarrowKind kind{to_ir(x.scalar_type()), along_of(w), static_cast<int>(columns)};
  const auto shape = dots_shape(kind);
  auto* to = out.data_ptr();
  const auto *from = x.const_data_ptr(), *small = w.const_data_ptr();
  void* arguments[] = {&to, &from, &small, &plan};
  kernels.get(kind, "dots")
      .launch(shape_for(shape, blocks_of(plan.rows, shape.rows), blocks_of(plan.narrow, shape.narrow)),
              arguments, stream_of(x));
}

void sums(const at::Tensor& out, const at::Tensor& x, const at::Tensor& t) {
  static Kernels kernels(sums_function);
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
  kernels.get(kind, "sums")
      .launch(shape_for(shape, blocks_of(plan.columns, shape.columns), blocks_of(plan.narrow, shape.narrow)),
              arguments, stream_of(x));
}

void spread(const at::Tensor& out, const Added& added, const at::Tensor& t, const at::Tensor& b) {
  static Kernels kernels(spread_function);
  const auto small = b.t();
  auto plan = plan_of(out, small, t);
  if (added) plan.added = added->stride(0);
  const NarrowKind kind{to_ir(out.scalar_type()),
                        along_of(small) == Along::narrow ? Along::narrow : Along::neither};
  const auto shape = spread_shape();
  auto* to = out.data_ptr();
  const auto *more = added ? added->const_data_ptr() : nullptr, *left = t.const_data_ptr(),
             *right = b.const_data_ptr();
  void* arguments[] = {&to, &more, &left, &right, &plan};
  kernels.get(kind, "spread")
      .launch(shape_for(shape, blocks_of(plan.rows, shape.rows), blocks_of(plan.columns, shape.columns)),
              arguments, stream_of(out));
}

/// x of any dtype that there is code for, w in floats, [large, short]: into out [large, short].
bool multiply_large(const at::Tensor& out, const at::Tensor& x, const at::Tensor& w) {
  const bool has_code = at::isReducedFloatingType(x.scalar_type()) || x.scalar_type() == at::kFloat;
  if (!has_code || !is_small_float(w)) return false;
  if (lies_along_rows(x)) {
    dots(out, x, w);
  } else if (lies_along_rows(x.t())) {
    sums(out, x.t(), w);
  } else {
    return false;
  }
  return true;
}

at::Tensor multiply(const at::Tensor& a, const at::Tensor& b, const Added& added, at::ScalarType dtype) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1), least = std::min({m, n, k});
  constexpr int64_t most_blocks = 65535;      // in the second and third dimension of a grid
  constexpr int with_bfloat16 = 8;            // of compute capability
  constexpr int64_t most = int64_t{1} << 30;  // of rows and columns, which kernels count in 32 bits
  if (least == 0 || std::max({m, n, k}) > most ||
      at::cuda::getCurrentDeviceProperties()->major < with_bfloat16)
    return float_mm(a, b, added, dtype);
  if (least == k) {
    auto out = at::empty({m, n}, a.options().dtype(dtype));
    const bool fits = is_small_float(a) && is_small_float(b) && lies_along_rows(out) &&
                      (dtype == at::kFloat || at::isReducedFloatingType(dtype)) &&
                      (!added || (added->scalar_type() == dtype && lies_along_rows(*added))) &&
                      blocks_of(n, spread_shape().columns) <= most_blocks;
    if (!fits) return float_mm(a, b, added, dtype);
    spread(out, added, a, b);
    return out;
  }
  if (!added && dtype == at::kFloat) {
    auto out = at::empty({m, n}, a.options().dtype(at::kFloat));
    if (least == n ? multiply_large(out, a, b) : multiply_large(out.t(), b.t(), a.t())) return out;
  }
  return float_mm(a, b, added, dtype);
}

}  // namespace

TORCH_LIBRARY_IMPL(graft, CUDA, m) { m.impl("float_mm", multiply); }

}  // namespace graft::cuda
