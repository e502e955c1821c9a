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

}  // namespace graft::adapters
