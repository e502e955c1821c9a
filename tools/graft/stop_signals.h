// SIGINT and SIGTERM as a wish to stop: training saves a checkpoint first.
#pragma once
#include <array>
#include <csignal>

#include "graft/trainer.h"

namespace graft::cli {

/// While it lives, the first of these signals is remembered, and the second ends the program at once. (One
/// that comes within an instant of the first is the same: a terminal and a launcher may both send it.) One
/// that was ignored when the program began stays so: shells start programs in the background like that.
class StopSignals {
 public:
  /// `speaks`: says on standard error that it was heard.
  explicit StopSignals(bool speaks);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of the signal that came; 0: none.
  static int seen();

 private:
  std::array<struct sigaction, 2> before_ = {};
};

/// "SIGINT"
const char* signal_name(int signal);

/// Ends the run, with a checkpoint, after the step in which a signal came.
class StopOnSignal : public TrainerCallback {
 public:
  void on_train_begin(const TrainerState&, TrainerControl& control) override {
    control.should_training_stop |= StopSignals::seen() != 0;  // the last checkpoint is the present state
  }
  void on_step_end(const TrainerState&, TrainerControl& control) override { stop(control); }
  /// An evaluation, which comes before it, may take long.
  void on_log(const TrainerState&, TrainerControl& control, const TrainingStep&) override { stop(control); }

 private:
  static void stop(TrainerControl& control) {
    if (StopSignals::seen() != 0) control.should_save = control.should_training_stop = true;
  }
};

}  // namespace graft::cli
