// Normalisation layers.
#pragma once
#include "nn/weighted.h"

namespace graft::nn {

class LayerNorm : public WeightedLayer {
 public:
  LayerNorm(const Build& b, int64_t dim, double eps = 1e-5, bool affine = true);
  at::Tensor apply(const at::Tensor& x, const at::Tensor& with_weight,
                   const at::Tensor& with_bias) const override;
  LayerKind kind() const override { return LayerKind::norm; }

 private:
  int64_t dim_;
  double eps_;
};

/// Llama's: the statistics and the division in float32, the result rounded to x's dtype, then the weight.
class RMSNorm : public WeightedLayer {
 public:
  RMSNorm(const Build& b, int64_t dim, double eps);
  at::Tensor apply(const at::Tensor& x, const at::Tensor& with_weight, const at::Tensor&) const override;
  LayerKind kind() const override { return LayerKind::norm; }

 private:
  double eps_;
};

class BatchNorm2d : public Layer {
 public:
  BatchNorm2d(const Build& b, int64_t channels, double eps = 1e-5, double momentum = 0.1);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  double eps_, momentum_;
};

}  // namespace graft::nn
