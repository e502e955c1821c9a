// What torch's own layers draw when they are constructed.
#pragma once
#include <ATen/ATen.h>

#include <cmath>

namespace graft::adapters {

inline int64_t fan_in(const at::Tensor& weight) { return weight.numel() / weight.size(0); }

/// torch.nn.init.kaiming_uniform_(weight, a, generator), in the order of torch's own roundings.
inline void kaiming_uniform(const at::Tensor& weight, double a,
                            const std::optional<at::Generator>& generator = std::nullopt) {
  const double gain = std::sqrt(2.0 / (1 + a * a));
  const double bound = std::sqrt(3.0) * (gain / std::sqrt(static_cast<double>(fan_in(weight))));
  weight.uniform_(-bound, bound, generator);
}

/// The weight of torch.nn.Linear or torch.nn.Conv2d.
inline void as_torch_layer(const at::Tensor& weight) { kaiming_uniform(weight, std::sqrt(5.0)); }

/// The bias beside such a weight.
inline void as_torch_bias(const at::Tensor& bias, const at::Tensor& weight) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in(weight)));
  bias.uniform_(-bound, bound);
}

/// torch.nn.init.xavier_uniform_
inline void xavier_uniform(const at::Tensor& weight) {
  const int64_t fan_out = weight.numel() / weight.size(1);
  const auto sum = static_cast<double>(fan_in(weight) + fan_out);
  const double bound = std::sqrt(3.0) * std::sqrt(2.0 / sum);
  weight.uniform_(-bound, bound);
}

}  // namespace graft::adapters
