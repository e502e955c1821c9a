// A compiled backward pass as one node of autograd's graph.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace graft {

/// Gradients of the inputs from the gradients of the outputs; undefined where there is none. An undefined
/// argument is an output that nobody used.
/// `last`: it will not be called again.
using BackwardPass = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&, bool last)>;

/// Makes `outputs` (plain results, each to be differentiated) depend on `inputs` through `backward`. What
/// `backward` holds is let go when autograd lets go of its saved tensors.
void connect(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
             BackwardPass backward);

}  // namespace graft
