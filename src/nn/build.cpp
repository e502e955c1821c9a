#include "nn/build.h"

namespace graft::nn {

at::Tensor Build::parameter(torch::nn::Module& owner, const std::string& name, at::IntArrayRef shape,
                            const Init& init) const {
  return owner.register_parameter(name, source_->parameter((*this / name).path(), shape, init));
}

at::Tensor Build::buffer(torch::nn::Module& owner, const std::string& name, at::IntArrayRef shape,
                         at::ScalarType dtype, double fill) const {
  return owner.register_buffer(name, source_->buffer((*this / name).path(), shape, dtype, fill));
}

at::Tensor Build::tied(torch::nn::Module& owner, const std::string& name, const at::Tensor& shared) const {
  return owner.register_parameter(name, source_->tied((*this / name).path(), shared));
}

}  // namespace graft::nn
