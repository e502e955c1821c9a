// A compiled backward pass as one node of autograd's graph.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace graft {

/// Gradients of the inputs from the gradients of the outputs; undefined where there is none. An undefined
/// argument is an output that nobody used.
/// `last`: autograd lets go of what was saved for the outputs whose gradients these are.
using BackwardPass = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&, bool last)>;

/// Makes `outputs` (plain results, each to be differentiated) depend on `inputs` (undefined: on none in that
/// place) through `backward`, which is to let go itself of what it holds.
/// `computed_from` has for each output those among them that it is computed from. The gradient by such an
/// output counts what comes through the others in eager code; `backward` does not give it, so asking for it
/// (a hook, retain_grad, grad() by it) is an Error.
void connect(const std::vector<at::Tensor>& outputs, const std::vector<std::vector<size_t>>& computed_from,
             const std::vector<at::Tensor>& inputs, BackwardPass backward);

}  // namespace graft
