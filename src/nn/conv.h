// Two-dimensional convolution, torch.nn.Conv2d.
#pragma once
#include "nn/weighted.h"

namespace graft::nn {

struct Conv2dShape {
  int64_t in, out;
  std::array<int64_t, 2> kernel, stride{1, 1}, padding{0, 0};
  bool bias = true;
  int64_t groups = 1;  ///< each sees in / groups of the channels
};

class Conv2d : public WeightedLayer {
 public:
  Conv2d(const Build& b, const Conv2dShape& shape);
  Conv2d(const Build& b, const Conv2dShape& shape, const Init& init);
  at::Tensor apply(const at::Tensor& x, const at::Tensor& with_weight,
                   const at::Tensor& with_bias) const override;
  LayerKind kind() const override { return LayerKind::conv2d; }
  const Conv2dShape& shape() const { return shape_; }

 private:
  Conv2dShape shape_;
};

}  // namespace graft::nn
