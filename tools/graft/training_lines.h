// What graft train says on standard error while it works.
#pragma once
#include <chrono>

#include "graft/trainer.h"

namespace graft::cli {

/// At a terminal one line that is drawn again after each step; else a line now and then. Evaluations have
/// lines of their own.
class TrainingLines : public TrainerCallback {
 public:
  /// `every`: a line each so many steps; 0: drawn again at a terminal, elsewhere after the first and the last
  /// step and about every ten seconds.
  explicit TrainingLines(int64_t every);
  void on_train_begin(const TrainerState& state, TrainerControl&) override;
  void on_log(const TrainerState& state, TrainerControl&, const TrainingStep& step) override;

 private:
  using Clock = std::chrono::steady_clock;
  bool is_time(const TrainingStep& step);
  void count(const TrainingStep& step);

  int64_t every_;
  bool redrawn_;
  bool open_ = false;  // there is a line without an end
  Clock::time_point shown_ = {};
  // Averages that follow a change of speed, and do not start with the compilation.
  double seconds_ = 0, tokens_ = 0;
  int64_t counted_ = 0;
};

}  // namespace graft::cli
