#include "nn/dropout.h"

#include <ATen/ATen.h>

#include "graft/error.h"

namespace graft::nn {

at::Tensor dropout(const at::Tensor& x, double p, bool training) { return at::dropout(x, p, training); }

at::Tensor drop_path(const at::Tensor& x, double p, bool training) {
  if (p == 0 || !training) return x;
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  const double keep = 1 - p;
  return x.div(keep) * at::floor(at::rand(shape, x.options()) + keep);
}

double dropout_rate(const Config& config, std::string_view key, double fallback) {
  const double p = config.number(key, fallback);
  if (!(p >= 0 && p <= 1))
    throw ConfigError("[config] \"" + std::string(key) + "\" must be between 0 and 1, got " +
                      std::to_string(p));
  return p;
}

}  // namespace graft::nn
