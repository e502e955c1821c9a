// How good a model is on data it was not trained on.
#pragma once
#include <set>

#include "train/precision.h"

namespace graft::train {

class Evaluator {
 public:
  Evaluator(const Subject& subject, const TrainingArguments& arguments)
      : subject_(subject),
        group_(processes_of(arguments)),
        forward_(compile(forward_under_autocast(subject, arguments), arguments.compile, {subject.module()})) {
  }
  /// One pass, without dropout. The loss is the mean over all labels of the data, whatever the batches are;
  /// of several processes each does some of these.
  EvalMetrics evaluate(const TrainingData& data) const;

 private:
  const Subject& subject_;
  std::shared_ptr<ProcessGroup> group_;
  Compiled<ModelOutput(const ModelInputs&)> forward_;
};

/// How the evaluations of a run went; all of it is in the log, so a resumed run knows it, too.
struct Standing {
  std::optional<int64_t> best_step = {};
  double best_loss = 0;
  int64_t no_better = 0;  ///< evaluations since one was better by more than the threshold
};
/// `forgotten` are steps whose evaluations do not count.
Standing standing_of(const std::vector<TrainingStep>& log, double threshold,
                     const std::set<int64_t>& forgotten = {});

}  // namespace graft::train
