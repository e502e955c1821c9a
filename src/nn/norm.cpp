#include "nn/norm.h"

#include "graft/error.h"

namespace graft::nn {

LayerNorm::LayerNorm(const Build& b, int64_t dim, double eps, bool affine)
    : WeightedLayer(b), dim_(dim), eps_(eps) {
  if (!affine) return;
  weight = b.parameter(*this, "weight", {dim}, {Init::Kind::ones});
  bias = b.parameter(*this, "bias", {dim}, {Init::Kind::zeros});
}

at::Tensor LayerNorm::apply(const at::Tensor& x, const at::Tensor& with_weight,
                            const at::Tensor& with_bias) const {
  return at::layer_norm(x, {dim_}, with_weight, with_bias, eps_);
}

RMSNorm::RMSNorm(const Build& b, int64_t dim, double eps, Form form)
    : WeightedLayer(b), eps_(eps), form_(form) {
  weight = b.parameter(*this, "weight", {dim}, {form == Form::plain ? Init::Kind::ones : Init::Kind::zeros});
}

at::Tensor RMSNorm::apply(const at::Tensor& x, const at::Tensor& with_weight, const at::Tensor&) const {
  const auto wide = x.to(at::kFloat);
  const auto variance = wide.pow(2).mean(-1, /*keepdim=*/true);
  const auto normed = wide * at::rsqrt(variance + eps_);
  if (form_ == Form::plain) return with_weight * normed.to(x.scalar_type());
  return (normed * (1.0 + with_weight.to(at::kFloat))).to(x.scalar_type());
}

BatchNorm2d::BatchNorm2d(const Build& b, int64_t channels, double eps, double momentum)
    : WeightedLayer(b), eps_(eps), momentum_(momentum) {
  weight = b.parameter(*this, "weight", {channels}, {Init::Kind::ones});
  bias = b.parameter(*this, "bias", {channels}, {Init::Kind::zeros});
  const auto dtype = weight.scalar_type();
  statistics.running_mean = b.buffer(*this, "running_mean", {channels}, dtype, 0);
  statistics.running_var = b.buffer(*this, "running_var", {channels}, dtype, 1);
  statistics.num_batches_tracked = b.buffer(*this, "num_batches_tracked", {}, at::kLong, 0);
}

at::Tensor BatchNorm2d::apply(const at::Tensor& x, const at::Tensor& with_weight,
                              const at::Tensor& with_bias) const {
  return apply(x, with_weight, with_bias, statistics);
}

at::Tensor BatchNorm2d::apply(const at::Tensor& x, const at::Tensor& with_weight, const at::Tensor& with_bias,
                              const Statistics& with) const {
  const bool cudnn = at::globalContext().userEnabledCuDNN();
  if (is_training() && x.numel() <= x.size(1))
    throw UsageError("[batch norm] training needs more than one value per channel, got a batch of " +
                     std::to_string(x.size(0)) + " with " + std::to_string(x.numel()) + " values in " +
                     std::to_string(x.size(1)) + " channels");
  // By the batch's own statistics, as the first time.
  if (is_training() && again_)
    return at::batch_norm(x, with_weight, with_bias, {}, {}, /*training=*/true, /*momentum=*/0, eps_, cudnn);
  if (is_training()) at::Tensor(with.num_batches_tracked).add_(1);
  return at::batch_norm(x, with_weight, with_bias, with.running_mean, with.running_var, is_training(),
                        momentum_, eps_, cudnn);
}

at::Tensor BatchNorm2d::forward_again(const at::Tensor& x) {
  again_ = true;
  const auto y = forward(x);
  again_ = false;
  return y;
}

}  // namespace graft::nn
