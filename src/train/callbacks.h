// The callbacks of a run, and what they ask for.
#pragma once
#include "graft/trainer.h"

namespace graft::train {

class Callbacks {
 public:
  void add(std::shared_ptr<TrainerCallback> callback);
  /// A new run. For all processes to call, as agree() is.
  void begin(const std::shared_ptr<ProcessGroup>& group);

  /// trainer.callbacks.call(&TrainerCallback::on_save, state)
  template <class Hook, class... More>
  void call(Hook hook, const TrainerState& state, const More&... more) {
    for (const auto& each : all_) (each.get()->*hook)(state, control, more...);
  }
  /// Evaluating, saving and stopping is done by all processes together: what one of them asks for, all do.
  void agree();

  TrainerControl control;

 private:
  std::vector<std::shared_ptr<TrainerCallback>> all_;
  std::shared_ptr<ProcessGroup> group_;  // where there is anybody to agree with
};

}  // namespace graft::train
