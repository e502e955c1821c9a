#include "nn/dropout.h"

#include <ATen/ATen.h>

#include "graft/error.h"

namespace graft::nn {

at::Tensor dropout(const at::Tensor& x, double p, bool training) { return at::dropout(x, p, training); }

double dropout_rate(const Config& config, std::string_view key, double fallback) {
  const double p = config.number(key, fallback);
  if (!(p >= 0 && p <= 1))
    throw ConfigError("[config] \"" + std::string(key) + "\" must be between 0 and 1, got " +
                      std::to_string(p));
  return p;
}

}  // namespace graft::nn
