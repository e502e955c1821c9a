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
  /// Gemma's `plus_one` multiplies by 1 + weight, and rounds only after that.
  enum class Form { plain, plus_one };
  RMSNorm(const Build& b, int64_t dim, double eps, Form form = Form::plain);
  at::Tensor apply(const at::Tensor& x, const at::Tensor& with_weight, const at::Tensor&) const override;
  LayerKind kind() const override { return LayerKind::norm; }

 private:
  double eps_;
  Form form_;
};

class BatchNorm2d : public WeightedLayer {
 public:
  /// What the layer has seen of the data so far; training moves it.
  struct Statistics {
    at::Tensor running_mean, running_var, num_batches_tracked;
  };

  BatchNorm2d(const Build& b, int64_t channels, double eps = 1e-5, double momentum = 0.1);
  at::Tensor apply(const at::Tensor& x, const at::Tensor& with_weight,
                   const at::Tensor& with_bias) const override;
  /// The layer's function with other statistics than its own, which it moves if the layer is in training.
  at::Tensor apply(const at::Tensor& x, const at::Tensor& with_weight, const at::Tensor& with_bias,
                   const Statistics& with) const;
  /// What forward() gave, computed once more: the statistics must not see a batch twice.
  at::Tensor forward_again(const at::Tensor& x);
  LayerKind kind() const override { return LayerKind::batch_norm; }

  Statistics statistics;

 private:
  double eps_, momentum_;
  bool again_ = false;
};

}  // namespace graft::nn
