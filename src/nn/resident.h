// Runs a part of a model with its weights there, where a Residency keeps them elsewhere.
#pragma once
#include <torch/nn/module.h>

#include "support/residency.h"

namespace graft::nn {

/// A module, and those that run before and after it, whose weights may be fetched meanwhile.
struct Place {
  const torch::nn::Module* module;
  const torch::nn::Module* before = nullptr;
  const torch::nn::Module* after = nullptr;
};

/// x, with the module's weights there; the gradient of x is the last thing they were needed for.
at::Tensor entered(const Place& place, const at::Tensor& x);
/// y, with the weights gone; they come back before the gradient of y goes on.
at::Tensor left(const Place& place, const at::Tensor& y);

/// body(x), with the module's weights there, and in the backward pass again.
template <class Body>
at::Tensor with_weights(const Place& place, const at::Tensor& x, const Body& body) {
  const auto* residency = Residency::current();
  if (!residency || residency->present(place.module)) return body(x);
  return left(place, body(entered(place, x)));
}

}  // namespace graft::nn
