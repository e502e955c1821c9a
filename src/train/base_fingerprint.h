// Which base model a run is on.
#pragma once
#include <string>

#include "graft/model.h"

namespace graft::train {

/// A hash over the weights' names, shapes, dtypes and a thousand elements of each, spread over it: another
/// model, or the same after training, has another. Weights that the checkpoint lacked, and that were drawn
/// anew, are left out: they are the run's own.
std::string base_fingerprint(const PreTrainedModel& model);

}  // namespace graft::train
