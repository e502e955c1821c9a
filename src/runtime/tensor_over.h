// A plain tensor over memory that is there already.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace graft::runtime {

inline at::Tensor tensor_over(const c10::Storage& storage, at::ScalarType dtype, at::IntArrayRef sizes,
                              at::IntArrayRef strides, int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage),
      c10::DispatchKeySet(c10::computeDispatchKey(dtype, at::kStrided, storage.device())),
      at::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

}  // namespace graft::runtime
