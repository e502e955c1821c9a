#include "nn/activation.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>

#include "graft/error.h"

namespace graft::nn {
namespace {

at::Tensor gelu(const at::Tensor& x) { return at::gelu(x); }
at::Tensor gelu_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }
// Spelled out, as GPT-2's checkpoints were trained: in bfloat16 each step rounds, and the fused gelu differs.
at::Tensor gelu_new(const at::Tensor& x) {
  return 0.5 * x * (1.0 + at::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * at::pow(x, 3.0))));
}
at::Tensor gelu_fast(const at::Tensor& x) {
  return 0.5 * x * (1.0 + at::tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)));
}
at::Tensor gelu_python(const at::Tensor& x) { return x * 0.5 * (1.0 + at::erf(x / std::sqrt(2.0))); }
at::Tensor gelu_clipped(const at::Tensor& x) { return at::clamp(at::gelu(x), -10, 10); }
// The cumulative normal distribution that is closest to relu2 (Ma et al. 2022, Mega).
at::Tensor laplace(const at::Tensor& x) {
  return 0.5 * (1.0 + at::erf((x - 0.707107) / (0.282095 * std::sqrt(2.0))));
}
at::Tensor sqrt_softplus(const at::Tensor& x) { return at::sqrt(at::softplus(x)); }
at::Tensor quick_gelu(const at::Tensor& x) { return x * at::sigmoid(1.702 * x); }
at::Tensor relu(const at::Tensor& x) { return at::relu(x); }
at::Tensor relu2(const at::Tensor& x) { return at::square(at::relu(x)); }
at::Tensor relu6(const at::Tensor& x) { return at::relu6(x); }
at::Tensor leaky_relu(const at::Tensor& x) { return at::leaky_relu(x); }
at::Tensor silu(const at::Tensor& x) { return at::silu(x); }
at::Tensor sigmoid(const at::Tensor& x) { return at::sigmoid(x); }
at::Tensor tanh(const at::Tensor& x) { return at::tanh(x); }
at::Tensor hardswish(const at::Tensor& x) { return at::hardswish(x); }
at::Tensor mish(const at::Tensor& x) { return at::mish(x); }
at::Tensor linear(const at::Tensor& x) { return x; }

const std::map<std::string, Activation>& table() {
  static const std::map<std::string, Activation> known{{"gelu", gelu},
                                                       {"gelu_10", gelu_clipped},
                                                       {"gelu_accurate", gelu_new},
                                                       {"gelu_fast", gelu_fast},
                                                       {"gelu_new", gelu_new},
                                                       {"gelu_python", gelu_python},
                                                       {"gelu_python_tanh", gelu_new},
                                                       {"gelu_pytorch_tanh", gelu_tanh},
                                                       {"hardswish", hardswish},
                                                       {"laplace", laplace},
                                                       {"leaky_relu", leaky_relu},
                                                       {"linear", linear},
                                                       {"mish", mish},
                                                       {"quick_gelu", quick_gelu},
                                                       {"relu", relu},
                                                       {"relu2", relu2},
                                                       {"relu6", relu6},
                                                       {"sigmoid", sigmoid},
                                                       {"silu", silu},
                                                       {"sqrtsoftplus", sqrt_softplus},
                                                       {"swish", silu},
                                                       {"tanh", tanh}};
  return known;
}

}  // namespace

Activation activation(const std::string& name, std::string_view key) {
  const auto found = table().find(name);
  if (found != table().end()) return found->second;
  std::string known;
  for (const auto& [each, function] : table()) known += (known.empty() ? "" : ", ") + each;
  throw ConfigError("[config] \"" + std::string(key) + "\" is \"" + name +
                    "\", which is not supported; known: " + known);
}

}  // namespace graft::nn
