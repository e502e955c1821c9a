#include "runtime/device.h"

#include <ATen/ATen.h>

#include <stdexcept>

namespace graft::runtime {

std::vector<std::unique_ptr<Recording>> Device::record(const std::function<void(const Cut&)>&) const {
  throw std::logic_error("this device records nothing");
}

void Device::multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) const {
  auto result = out;
  at::mm_out(result, a, b);
}

void Device::multiply_and_add_into(const at::Tensor& out, const at::Tensor& added, const at::Tensor& a,
                                   const at::Tensor& b, double beta, double alpha) const {
  auto result = out;
  at::addmm_out(result, added, a, b, beta, alpha);
}

std::shared_ptr<const ProductWay> Device::fastest_way(const ir::TensorType&, const ir::TensorType*,
                                                      const ir::TensorType&, const ir::TensorType&,
                                                      const cache::Measuring&) const {
  return nullptr;
}

std::unique_ptr<PackedProduct> Device::pack(ir::DType, int64_t, int64_t, int64_t,
                                            const cache::Measuring&) const {
  return nullptr;
}

}  // namespace graft::runtime
