// Dropout, and how configs give its rate.
#pragma once
#include <ATen/core/Tensor.h>

#include <string_view>

#include "graft/config.h"

namespace graft::nn {

/// x with each element zeroed with probability p and the rest scaled by 1 / (1 - p); x itself outside
/// training.
at::Tensor dropout(const at::Tensor& x, double p, bool training);

/// Stochastic depth (Huang et al. 2016): each row of the batch zeroed as a whole with probability p, the rest
/// scaled; x itself outside training.
at::Tensor drop_path(const at::Tensor& x, double p, bool training);

/// The probability under `key`; ConfigError when it is none.
double dropout_rate(const Config& config, std::string_view key, double fallback);

}  // namespace graft::nn
