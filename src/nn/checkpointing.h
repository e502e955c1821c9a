// Gradient checkpointing: a block's activations are dropped after the forward pass and computed again in the
// backward pass.
#pragma once
#include <torch/nn/module.h>

#include <functional>

#include "nn/resident.h"

namespace graft::nn {

/// y = block(x), keeping only x. `module` owns the parameters the block uses; gradients reach x and every
/// parameter of it that requires one, also through torch::autograd::grad. Dropout draws the same numbers in
/// both passes. `block` must be a pure function of x and may run a second time after this call returned, so
/// it must own what it captures.
at::Tensor checkpointed(const torch::nn::Module& module,
                        const std::function<at::Tensor(const at::Tensor&)>& block, const at::Tensor& x);

/// The same for a block of several inputs, all of them defined; gradients reach each.
at::Tensor checkpointed(const torch::nn::Module& module,
                        const std::function<at::Tensor(at::TensorList)>& block,
                        const std::vector<at::Tensor>& inputs);

/// x through all blocks in turn, each called as forward(x, with...) and, where asked, checkpointed.
template <class Blocks, class... With>
at::Tensor through(const Blocks& blocks, at::Tensor x, bool recompute, const With&... with) {
  for (const auto& block : blocks)
    x = with_weights(*block, x, [&](const at::Tensor& in) {
      return recompute ? checkpointed(
                             *block,
                             [block, with...](const at::Tensor& h) { return block->forward(h, with...); }, in)
                       : block->forward(in, with...);
    });
  return x;
}

}  // namespace graft::nn
