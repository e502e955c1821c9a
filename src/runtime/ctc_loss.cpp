// graft::ctc_loss and its backward: ATen's, with what is kept for the backward as wide as the table of
// targets. ATen's is as wide as the longest target, which is data.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

namespace graft::runtime {
namespace {

using at::Tensor;

/// What belongs to a target of that length.
int64_t states_of(int64_t length) { return 2 * length + 1; }

std::tuple<Tensor, Tensor> ctc_loss(const Tensor& log_probs, const Tensor& targets,
                                    const Tensor& input_lengths, const Tensor& target_lengths, int64_t blank,
                                    bool zero_infinity) {
  auto [loss, alpha] = at::_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity);
  const auto missing = states_of(targets.size(1)) - alpha.size(-1);
  return {loss, missing > 0 ? at::constant_pad_nd(alpha, {0, missing}) : alpha};
}

Tensor ctc_loss_backward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                         const Tensor& input_lengths, const Tensor& target_lengths, const Tensor& loss,
                         const Tensor& alpha, int64_t blank, bool zero_infinity) {
  const auto longest = target_lengths.numel() > 0 ? target_lengths.max().item<int64_t>() : 0;
  const auto states = std::min(states_of(longest), alpha.size(-1));
  return at::_ctc_loss_backward(grad, log_probs, targets, input_lengths, target_lengths, loss,
                                alpha.narrow(-1, 0, states).contiguous(), blank, zero_infinity);
}

TORCH_LIBRARY_FRAGMENT(graft, m) {
  m.def(
      "ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, "
      "bool zero_infinity) -> (Tensor, Tensor)");
  m.def(
      "ctc_loss_backward(Tensor grad, Tensor log_probs, Tensor targets, Tensor input_lengths, "
      "Tensor target_lengths, Tensor loss, Tensor alpha, int blank, bool zero_infinity) -> Tensor");
}

TORCH_LIBRARY_IMPL(graft, CompositeExplicitAutograd, m) {
  m.impl("ctc_loss", ctc_loss);
  m.impl("ctc_loss_backward", ctc_loss_backward);
}

}  // namespace
}  // namespace graft::runtime
