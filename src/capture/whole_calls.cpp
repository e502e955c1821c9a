// Operators that torch takes apart above the key that watchers stand at, and whose parts read values on the
// host although the whole need not. While somebody watches they are called as what they are.
#include "capture/whole_calls.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <limits>
#include <utility>

#include "capture/call_watcher.h"
#include "capture/ivalue.h"

namespace graft {
namespace {

using at::Tensor;
using Stack = torch::jit::Stack;

thread_local std::string_view called;

/// While one lives, what reads values does so for that operator.
class CalledAs {
 public:
  explicit CalledAs(std::string_view op) : before_(std::exchange(called, op)) {}
  ~CalledAs() { called = before_; }
  CalledAs(const CalledAs&) = delete;
  CalledAs& operator=(const CalledAs&) = delete;

 private:
  std::string_view before_;
};

CallWatcher* watching() {
  return c10::impl::tls_is_dispatch_key_excluded(record_key) ? nullptr : CallWatcher::current();
}

void take_apart(const c10::OperatorHandle& op, Stack* stack) {
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
}

/// With the number of classes given, its parts only check that the values are classes; on the host the
/// operator does so itself.
void one_hot(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  auto* const watcher = watching();
  const auto& classes = stack->back();
  const auto& self = stack->at(stack->size() - 2).toTensor();
  if (watcher && classes.toInt() > 0 && self.is_cpu() && self.numel() > 0)
    return watcher->on_call(op, keys, stack);
  const CalledAs whole("aten::one_hot");
  take_apart(op, stack);
}

/// It looks whether there is a zero, and takes one way or the other to the same gradient.
void cumprod_backward(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  auto* const watcher = watching();
  const auto& input = stack->at(stack->size() - 3).toTensor();
  if (watcher && !at::GradMode::is_enabled() && input.is_cpu()) return watcher->on_call(op, keys, stack);
  const CalledAs whole("aten::cumprod_backward");
  take_apart(op, stack);
}

/// Without gradients torch has a way of its own, whose result no operator is seen to fill.
void max_pool1d(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  auto* const watcher = watching();
  const auto& self = stack->at(stack->size() - 6).toTensor();
  const bool trains = at::GradMode::is_enabled() && self.requires_grad();
  if (watcher && !trains && self.is_cpu()) return watcher->on_call(op, keys, stack);
  const CalledAs whole("aten::max_pool1d");
  take_apart(op, stack);
}

/// runtime/ctc_loss.cpp, with its gradient.
struct PaddedCtcLoss : torch::autograd::Function<PaddedCtcLoss> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const Tensor& log_probs, const Tensor& targets,
                                                const Tensor& input_lengths, const Tensor& target_lengths,
                                                int64_t blank, bool zero_infinity) {
    static const auto op = operator_named("graft::ctc_loss")
                               .typed<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                                 const Tensor&, int64_t, bool)>();
    auto [loss, alpha] = op.call(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity);
    context->save_for_backward({log_probs, targets, input_lengths, target_lengths, loss, alpha});
    context->saved_data["blank"] = blank;
    context->saved_data["zero_infinity"] = zero_infinity;
    context->mark_non_differentiable({alpha});
    return {loss, alpha};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    static const auto op = operator_named("graft::ctc_loss_backward")
                               .typed<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                             const Tensor&, const Tensor&, const Tensor&, int64_t, bool)>();
    const auto saved = context->get_saved_variables();
    auto made = op.call(gradients[0], saved[0], saved[1], saved[2], saved[3], saved[4], saved[5],
                        context->saved_data["blank"].toInt(), context->saved_data["zero_infinity"].toBool());
    return {made, {}, {}, {}, {}, {}};
  }
};

struct CtcLoss {
  Tensor log_probs, targets, input_lengths, target_lengths;
  int64_t blank, reduction;
  bool zero_infinity;

  explicit CtcLoss(const Stack& stack) {
    auto at = stack.end() - 7;
    log_probs = (at++)->toTensor(), targets = (at++)->toTensor();
    input_lengths = (at++)->toTensor(), target_lengths = (at++)->toTensor();
    blank = (at++)->toInt(), reduction = (at++)->toInt(), zero_infinity = (at++)->toBool();
  }

  /// Padded targets: the sizes of all that is computed follow from sizes.
  bool has_fixed_sizes() const { return log_probs.dim() == 3 && targets.dim() == 2; }

  /// As at::ctc_loss computes it, with lengths that stay tensors.
  Tensor of_tensors() const {
    const auto lengths = target_lengths.to(at::kLong);
    auto loss = PaddedCtcLoss::apply(log_probs, targets, input_lengths.to(at::kLong), lengths, blank,
                                     zero_infinity)[0];
    if (zero_infinity)
      loss = at::where(loss == std::numeric_limits<double>::infinity(), at::zeros({}, loss.options()), loss);
    if (reduction == at::Reduction::Mean) return (loss / lengths.to(loss.options()).clamp_min(1)).mean();
    return reduction == at::Reduction::Sum ? loss.sum() : loss;
  }
};

/// torch reads the lengths through a pointer, which nobody sees.
void ctc_loss(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
  if (!watching()) return take_apart(op, stack);
  const CtcLoss call(*stack);
  if (call.has_fixed_sizes()) {
    torch::jit::drop(*stack, 7);
    stack->emplace_back(call.of_tensors());
    return;
  }
  const CalledAs whole("aten::ctc_loss");
  // So that it is seen.
  if (call.target_lengths.numel() > 0) call.target_lengths.max().item();
  if (call.input_lengths.numel() > 0) call.input_lengths.max().item();
  take_apart(op, stack);
}

void enter(torch::Library& m) {
  m.impl("one_hot", torch::CppFunction::makeFromBoxedFunction<&one_hot>());
  m.impl("cumprod_backward", torch::CppFunction::makeFromBoxedFunction<&cumprod_backward>());
  m.impl("max_pool1d", torch::CppFunction::makeFromBoxedFunction<&max_pool1d>());
  m.impl("ctc_loss.Tensor", torch::CppFunction::makeFromBoxedFunction<&ctc_loss>());
}

TORCH_LIBRARY_IMPL(aten, Fake, m) { enter(m); }
TORCH_LIBRARY_IMPL(aten, AutogradCPU, m) { enter(m); }
TORCH_LIBRARY_IMPL(aten, AutogradCUDA, m) { enter(m); }

}  // namespace

std::string_view called_as() { return called; }

}  // namespace graft
