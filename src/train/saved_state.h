// The tensors of a checkpoint: what is trained, the optimizer's, and where the random numbers stand.
#pragma once
#include "train/stepper.h"

namespace graft::train {

/// What the optimizer and the random numbers of all processes are: all have to ask, the first writes it.
struct StepState {
  NamedTensors optimizer, random;
};
StepState step_state(const Stepper& stepper, ProcessGroup& group);

void save_state(const std::filesystem::path& dir, const Subject& subject, const StepState& state);
/// The optimizer's state and this process's random numbers; the subject is loaded before, since its tensors
/// may be others then.
void load_state(const std::filesystem::path& dir, const Subject& subject, Stepper& stepper, int rank);

}  // namespace graft::train
