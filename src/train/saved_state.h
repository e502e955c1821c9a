// The tensors of a checkpoint: what is trained, the optimizer's, and where the random numbers stand.
#pragma once
#include "train/stepper.h"

namespace graft::train {

void save_state(const std::filesystem::path& dir, const Subject& subject, const Stepper& stepper);
/// The optimizer's state and the random numbers; the subject is loaded before, since its tensors may be
/// others then.
void load_state(const std::filesystem::path& dir, const Subject& subject, Stepper& stepper);

}  // namespace graft::train
