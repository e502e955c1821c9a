// Batch normalisation's operators change the running statistics they are given and do not say so in their
// schemas, which the recorder believes; so during a capture they are replaced by twins that say it.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace graft {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor, Tensor> declared_batch_norm(const Tensor& input,
                                                       const std::optional<Tensor>& weight,
                                                       const std::optional<Tensor>& bias,
                                                       const std::optional<Tensor>& running_mean,
                                                       const std::optional<Tensor>& running_var,
                                                       bool training, double momentum, double eps) {
  const bool tracked = running_mean && running_mean->defined();
  if (!tracked) return at::_native_batch_norm_legit(input, weight, bias, training, momentum, eps);
  auto mean = *running_mean, var = *running_var;
  if (training) return at::_native_batch_norm_legit(input, weight, bias, mean, var, training, momentum, eps);
  return at::_native_batch_norm_legit_no_training(input, weight, bias, mean, var, momentum, eps);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> declared_cudnn_batch_norm(
    const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
    const std::optional<Tensor>& running_mean, const std::optional<Tensor>& running_var, bool training,
    double momentum, double eps) {
  const auto nothing_reserved = at::empty({0}, input.options().dtype(at::kByte));
  if (!training || !running_mean || !running_mean->defined()) {
    // Outside training the backward is the native one, which needs no reserve.
    const auto made =
        native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
    return {std::get<0>(made), std::get<1>(made), std::get<2>(made), nothing_reserved};
  }
  auto mean = *running_mean, var = *running_var;
  return at::_batch_norm_with_update(input, weight, bias, mean, var, momentum, eps);
}

TORCH_LIBRARY_IMPL(aten, Fake, m) {
  m.impl("native_batch_norm", declared_batch_norm);
  m.impl("cudnn_batch_norm", declared_cudnn_batch_norm);
}

}  // namespace
}  // namespace graft
