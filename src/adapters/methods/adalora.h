// AdaLoRA: LoRA in the form of a singular value decomposition, whose least important values training takes
// away.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

struct Adapter;

Method adalora_method();

/// PEFT's AdaLoraModel.update_and_allocate: to be called in every training step after the optimiser's, while
/// the gradients are there. The ranks that are left go into the adapter's configuration. UsageError: it is no
/// AdaLoRA.
void update_and_allocate(Adapter& adapter, int64_t step);
/// What that keeps from step to step; nothing for other methods.
NamedTensors allocation_state(const Adapter& adapter);
/// The configuration with the ranks that the layers have now, where they were chosen.
AdapterConfig allocated_config(const Adapter& adapter);

}  // namespace graft::adapters
