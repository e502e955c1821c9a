#include "nn/linear.h"

namespace graft::nn {

Linear::Linear(const Build& b, int64_t in_features, int64_t out_features, bool with_bias) : WeightedLayer(b) {
  weight = b.parameter(*this, "weight", {out_features, in_features}, b.normal());
  if (with_bias) bias = b.parameter(*this, "bias", {out_features}, {Init::Kind::zeros});
}

Linear::Linear(const Build& b, int64_t in_features, int64_t out_features, const Init& init)
    : WeightedLayer(b) {
  weight = b.parameter(*this, "weight", {out_features, in_features}, init);
  bias = b.parameter(*this, "bias", {out_features}, init);
}

Linear::Linear(const Build& b, int64_t in_features, int64_t out_features, const Init& init, NoBias)
    : WeightedLayer(b) {
  weight = b.parameter(*this, "weight", {out_features, in_features}, init);
}

Linear::Linear(const Build& b, const at::Tensor& shared, bool with_bias) : WeightedLayer(b) {
  weight = b.tied(*this, "weight", shared);
  if (with_bias) bias = b.parameter(*this, "bias", {shared.size(0)}, {Init::Kind::zeros});
}

at::Tensor Linear::apply(const at::Tensor& x, const at::Tensor& with_weight,
                         const at::Tensor& with_bias) const {
  return at::linear(x, for_product(with_weight), with_bias);
}

void lay_side_by_side(const std::vector<std::shared_ptr<Linear>>& layers) {
  const auto& first = layers.front()->weight;
  int64_t rows = 0;
  for (const auto& layer : layers) {
    const auto& weight = layer->weight;
    const bool alike = weight.is_cuda() && weight.is_contiguous() && weight.device() == first.device() &&
                       weight.scalar_type() == first.scalar_type() && weight.size(1) == first.size(1);
    // The layer has it, and the module's table: a tied one has more owners.
    if (!alike || weight.use_count() > 2 || weight.storage().use_count() > 1) return;
    rows += weight.size(0);
  }
  const at::NoGradGuard no_grad;
  const auto all = at::empty({rows, first.size(1)}, first.options().requires_grad(false));
  int64_t start = 0;
  for (const auto& layer : layers) {
    auto part = all.narrow(0, start, layer->weight.size(0));
    part.copy_(layer->weight);
    layer->weight.set_data(part);
    start += part.size(0);
  }
}

Conv1D::Conv1D(const Build& b, int64_t in_features, int64_t out_features)
    : Conv1D(b, in_features, out_features, b.normal()) {}

Conv1D::Conv1D(const Build& b, int64_t in_features, int64_t out_features, const Init& init)
    : WeightedLayer(b) {
  weight = b.parameter(*this, "weight", {in_features, out_features}, init);
  bias = b.parameter(*this, "bias", {out_features}, {Init::Kind::zeros});
}

at::Tensor Conv1D::apply(const at::Tensor& x, const at::Tensor& with_weight,
                         const at::Tensor& with_bias) const {
  auto shape = x.sizes().vec();
  shape.back() = with_weight.size(1);
  const auto rows = x.reshape({-1, x.size(-1)});
  const auto factor = for_product(with_weight);
  return (with_bias.defined() ? at::addmm(with_bias, rows, factor) : at::mm(rows, factor)).view(shape);
}

}  // namespace graft::nn
