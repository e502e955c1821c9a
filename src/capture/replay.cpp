#include "capture/replay.h"

#include <algorithm>

#include "capture/op_facts.h"
#include "capture/placeholder.h"
#include "capture/trace_run.h"

namespace graft {

void ReplayedRun::on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (follower_.is_next_here(op, *stack)) return follower_.give_placeholders(*stack);
  if (computes_nothing(op, std::span(*stack).last(op.schema().arguments().size())))
    return call_below(op, keys, *stack);
  if (follower_.is_next(op, *stack)) return follower_.give_placeholders(*stack);
  make_up();
  call_below(op, keys, *stack);
}

/// From here on the function runs as eager code.
void ReplayedRun::make_up() {
  following_ = false;
  end();
  follower_.compute_elements();
}

/// Whether the code has put something aside in this call. The outputs, which a program's are given instead
/// of, lose their histories: these hold what autograd has saved.
bool ReplayedRun::keeps_something(std::vector<at::Tensor>& outputs) {
  const auto is_placeholder = [&](const at::Tensor& output) {
    return output.defined() &&
           std::ranges::any_of(follower_.made(), [&](const TraceFollower::Object& object) {
             return object.tensor._unsafe_get_target() == output.unsafeGetTensorImpl();
           });
  };
  for (const auto& output : outputs)
    if (is_placeholder(output)) output.unsafeGetTensorImpl()->set_autograd_meta(nullptr);
  return std::ranges::any_of(follower_.made(), [&](const TraceFollower::Object& object) {
    const auto given_back = std::ranges::count_if(outputs, [&](const at::Tensor& output) {
      return output.unsafeGetTensorImpl() == object.tensor._unsafe_get_target();
    });
    return object.tensor.use_count() > static_cast<size_t>(given_back);
  });
}

/// The calls are made again as the function made them, autograd's part included, and all that is still there
/// becomes what they give.
void ReplayedRun::compute_kept() {
  following_ = false;
  kept_ = true;
  end();
  TraceRun(follower_.trace(), follower_.inputs_now())
      .run(0, follower_.calls(), [&](uint32_t number, at::Tensor made) {
        auto placeholder = follower_.made()[number].placeholder();
        if (!placeholder.defined()) return made;
        fill_placeholders({placeholder}, {made});
        return placeholder;
      });
}

ReplayedRun::Outcome ReplayedRun::run(const Function& function, const std::vector<at::Tensor>& arguments) {
  std::vector<at::Tensor> outputs;
  try {
    begin();
    outputs = function(arguments);
    if (following_ && !follower_.ends(outputs)) make_up();
    if (following_ && keeps_something(outputs)) compute_kept();
  } catch (const std::exception& error) {
    if (!following_) throw;
    if (is_about_a_placeholder(error.what())) {
      end();
      return {.refused = "the function reads elements of a tensor through a pointer"};
    }
    make_up();
    throw;
  }
  end();
  if (following_) return {.followed = follower_.current(), .told = follower_.told()};
  return {.outputs = std::move(outputs), .kept = kept_};
}

}  // namespace graft
