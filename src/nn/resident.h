// Runs a part of a model with its weights there, where a Residency keeps them elsewhere.
#pragma once
#include <torch/nn/module.h>

#include "support/residency.h"

namespace graft::nn {

/// x, with the module's weights there; the gradient of x is the last thing they were needed for.
at::Tensor entered(const torch::nn::Module& module, const at::Tensor& x);
/// y, with the weights gone; they come back before the gradient of y continues.
at::Tensor left(const torch::nn::Module& module, const at::Tensor& y);

/// body(x), with the module's weights there, and in the backward pass again.
template <class Body>
at::Tensor with_weights(const torch::nn::Module& module, const at::Tensor& x, const Body& body) {
  const auto* residency = Residency::current();
  if (!residency || residency->present(&module)) return body(x);
  return left(module, body(entered(module, x)));
}

/// The weight as autocast wants it for a product. Autocast's own copy would be autograd's until the backward
/// pass; of a frozen weight that comes and goes there is one that does so, too. Else it is the weight itself.
at::Tensor for_product(const at::Tensor& weight);

}  // namespace graft::nn
