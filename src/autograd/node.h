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

/// Makes `outputs` (plain results, each to be differentiated) depend on `inputs` (undefined: on none in that
/// place) through `backward`. What
/// `backward` holds is let go when autograd lets go of its saved tensors.
/// `computed_from` has for each output those among them that it is computed from. The gradient by such an
/// output counts what comes through the others in eager code; `backward` does not give it, so asking for it
/// (a hook, retain_grad, grad() by it) is an Error. `saves` tensors: without any the backward pass may come
/// again, as eager's may.
void connect(const std::vector<at::Tensor>& outputs, const std::vector<std::vector<size_t>>& computed_from,
             const std::vector<at::Tensor>& inputs, BackwardPass backward, bool saves);

}  // namespace graft
