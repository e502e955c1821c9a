#include "nn/conv.h"

namespace graft::nn {

Conv2d::Conv2d(const Build& b, const Conv2dShape& shape) : Conv2d(b, shape, b.normal()) {}

Conv2d::Conv2d(const Build& b, const Conv2dShape& shape, const Init& init) : WeightedLayer(b), shape_(shape) {
  weight = b.parameter(*this, "weight",
                       {shape.out, shape.in / shape.groups, shape.kernel[0], shape.kernel[1]}, init);
  if (shape.bias) bias = b.parameter(*this, "bias", {shape.out}, {Init::Kind::zeros});
}

at::Tensor Conv2d::apply(const at::Tensor& x, const at::Tensor& with_weight,
                         const at::Tensor& with_bias) const {
  return at::conv2d(x, for_product(with_weight), with_bias, shape_.stride, shape_.padding, {1, 1},
                    shape_.groups);
}

}  // namespace graft::nn
