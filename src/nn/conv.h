// Two-dimensional convolution, torch.nn.Conv2d.
#pragma once
#include "nn/build.h"

namespace graft::nn {

struct Conv2dShape {
  int64_t in, out;
  std::array<int64_t, 2> kernel, stride{1, 1}, padding{0, 0};
  bool bias = true;
};

class Conv2d : public Layer {
 public:
  Conv2d(const Build& b, const Conv2dShape& shape);
  Conv2d(const Build& b, const Conv2dShape& shape, const Init& init);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight, bias;

 private:
  Conv2dShape shape_;
};

}  // namespace graft::nn
