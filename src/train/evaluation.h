// How good a model is on data it was not trained on.
#pragma once
#include "train/subject.h"

namespace graft::train {

/// One pass, without dropout. The loss is the mean over all labels of the data, whatever the batches are.
EvalMetrics evaluate(const Subject& subject, const TrainingData& data, const CompileOptions& options);

}  // namespace graft::train
