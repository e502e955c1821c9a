#include "targets/cuda/matrices.h"

#include <ATen/cuda/CUDAContext.h>

#include "targets/cuda_code/matrix_parts.h"

namespace graft::cuda {

const LoadedKernel& MatrixKernels::get(const NarrowKind& kind) {
  const std::lock_guard<std::mutex> lock(guard_);
  auto& found = all_[kind];
  if (!found) found = std::make_unique<const LoadedKernel>(compiled_once(matrix_code(text_(kind))), name_);
  return *found;
}

void* stream_of(const at::Tensor& x) {
  return static_cast<void*>(at::cuda::getCurrentCUDAStream(x.device().index()).stream());
}

int64_t blocks_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

bool has_code(at::ScalarType dtype) { return dtype == at::kFloat || at::isReducedFloatingType(dtype); }

bool is_aligned(const at::Tensor& x) {
  constexpr uintptr_t at_once = 16;
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % at_once == 0;
}

bool lies_along_rows(const at::Tensor& x) {
  return x.stride(1) == 1 && x.size(1) % narrow_group == 0 && x.stride(0) % narrow_group == 0 &&
         x.stride(0) >= x.size(1) && is_aligned(x);
}

Division division() {
  constexpr int with_clusters = 9, most = 8;  // of compute capability; blocks that every GPU with them takes
  const auto* properties = at::cuda::getCurrentDeviceProperties();
  return {.processors = properties->multiProcessorCount,
          .most_slices = properties->major >= with_clusters ? most : 1};
}

bool has_matrix_units() {
  constexpr int with_bfloat16 = 8;  // of compute capability
  return at::cuda::getCurrentDeviceProperties()->major >= with_bfloat16;
}

}  // namespace graft::cuda
