#include "capture/replay.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "capture/placeholder.h"
#include "capture/trace_run.h"

namespace graft {

ReplayedRun::ReplayedRun(std::vector<TraceToFollow> traces, Begin begin, Filled filled)
    : follower_(std::move(traces)), begin_(std::move(begin)), filled_(std::move(filled)) {}

ReplayedRun::~ReplayedRun() { stop(); }

void ReplayedRun::stop() {
  end();
  below_.reset();
}

void ReplayedRun::on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (torch::autograd::get_current_graph_task_id() >= 0)
    throw CannotBeReplayed("the function runs a backward pass");
  if (follower_.is_next_here(op, *stack)) return follower_.give_placeholders(*stack);
  if (calls_no_operator(op, keys, *stack)) return;
  if (follower_.is_next(op, *stack)) return follower_.give_placeholders(*stack);
  make_up();
  op.callBoxed(stack);
}

void ReplayedRun::make_up() {
  // Where such a mode ends, torch puts back the keys as they were when it began: without autograd's.
  if (c10::InferenceMode::is_enabled() != inference_)
    throw CannotBeReplayed("the function switches inference mode");
  following_ = false;
  stop();
  begin_();
  TraceRun(follower_.trace(), follower_.inputs())
      .run(0, follower_.calls(), [&](uint32_t number, at::Tensor made) {
        auto placeholder = follower_.made()[number].placeholder();
        if (!placeholder.defined()) return made;
        fill_placeholders({placeholder}, {made});
        filled_(placeholder, made);
        return placeholder;
      });
}

bool ReplayedRun::keeps_something(const std::vector<at::Tensor>& outputs) const {
  return std::ranges::any_of(follower_.made(), [&](const TraceFollower::Object& placeholder) {
    const auto given_back = std::ranges::count_if(outputs, [&](const at::Tensor& output) {
      return output.unsafeGetTensorImpl() == placeholder.tensor._unsafe_get_target();
    });
    return placeholder.tensor.use_count() > static_cast<size_t>(given_back);
  });
}

ReplayedRun::Outcome ReplayedRun::run(const Function& function, const std::vector<at::Tensor>& arguments) {
  std::vector<at::Tensor> outputs;
  const auto refused = [&](const std::string& why) {
    stop();
    return Outcome{.refused = why};
  };
  try {
    below_.emplace();
    begin();
    outputs = function(arguments);
    if (following_ && (!follower_.ends(outputs) || keeps_something(outputs))) make_up();
  } catch (const CannotBeReplayed& error) {
    return refused(error.what());
  } catch (const std::exception& error) {
    if (!following_) throw;
    if (is_about_a_placeholder(error.what()))
      return refused("the function reads elements of a tensor through a pointer");
    make_up();
    throw;
  }
  stop();
  if (following_) return {.followed = follower_.current()};
  return {.outputs = std::move(outputs)};
}

}  // namespace graft
