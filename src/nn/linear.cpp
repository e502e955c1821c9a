#include "nn/linear.h"

namespace graft::nn {

Linear::Linear(const Build& b, int64_t in_features, int64_t out_features, bool with_bias) : Layer(b) {
  weight = b.parameter(*this, "weight", {out_features, in_features}, b.normal());
  if (with_bias) bias = b.parameter(*this, "bias", {out_features}, {Init::Kind::zeros});
}

Linear::Linear(const Build& b, int64_t in_features, int64_t out_features, const Init& init) : Layer(b) {
  weight = b.parameter(*this, "weight", {out_features, in_features}, init);
  bias = b.parameter(*this, "bias", {out_features}, init);
}

Linear::Linear(const Build& b, const at::Tensor& shared, bool with_bias) : Layer(b) {
  weight = b.tied(*this, "weight", shared);
  if (with_bias) bias = b.parameter(*this, "bias", {shared.size(0)}, {Init::Kind::zeros});
}

at::Tensor Linear::forward(const at::Tensor& x) { return at::linear(x, weight, bias); }

Conv1D::Conv1D(const Build& b, int64_t in_features, int64_t out_features)
    : Conv1D(b, in_features, out_features, b.normal()) {}

Conv1D::Conv1D(const Build& b, int64_t in_features, int64_t out_features, const Init& init) : Layer(b) {
  weight = b.parameter(*this, "weight", {in_features, out_features}, init);
  bias = b.parameter(*this, "bias", {out_features}, {Init::Kind::zeros});
}

at::Tensor Conv1D::forward(const at::Tensor& x) {
  auto shape = x.sizes().vec();
  shape.back() = weight.size(1);
  return at::addmm(bias, x.reshape({-1, x.size(-1)}), weight).view(shape);
}

}  // namespace graft::nn
