// Where torch's random numbers stand, on all processes and devices.
#pragma once
#include "graft/process_group.h"
#include "graft/safetensors.h"

namespace graft::train {

/// The file of a checkpoint that has it.
inline constexpr const char* kRandomFile = "rng_state.safetensors";

/// The states of the default generators: "cpu", "cuda:0" and so on, those of other processes with ".RANK".
/// All processes have to ask; each is given those of all.
NamedTensors random_state(ProcessGroup& group);

/// This process continues where it stood, or the first did, if there were fewer processes. A generator that
/// was not there is left as it is.
void restore_random_state(const SafetensorsFile& from, int rank);

}  // namespace graft::train
