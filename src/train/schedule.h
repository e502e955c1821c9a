// Learning rate schedules, by transformers' names and formulas (transformers.optimization).
#pragma once
#include <cstdint>
#include <string>

namespace graft::train {

class Schedule {
 public:
  /// UsageError that lists the known names.
  Schedule(const std::string& name, double learning_rate, int64_t warmup_steps, int64_t total_steps);

  /// For the step of that number, counted from 0.
  double learning_rate(int64_t step) const;

  /// After the warm-up, through which all but "constant" rise linearly from 0.
  using Factor = double (*)(const Schedule&, int64_t step);
  double base() const { return base_; }
  int64_t warmup() const { return warmup_; }
  int64_t total() const { return total_; }
  /// How much of the way from the end of the warm-up to the last step is done.
  double progress(int64_t step) const;

 private:
  Factor factor_;
  double base_;
  int64_t warmup_, total_;
};

/// Beyond it a double does not count one by one.
inline constexpr double kMostSteps = 9007199254740992.0;  // 2^53

/// `warmup_steps` of TrainingArguments: a number of steps, or below 1 a share of all.
int64_t warmup_count(double warmup_steps, int64_t total_steps);

}  // namespace graft::train
