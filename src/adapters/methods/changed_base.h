// Layers that share a weight out of which LoRA's start took a part (PiSSA, OLoRA, KaSA). PEFT changes the one
// tensor that all of them have; here each of them loses that part, where the adapter works.
#pragma once
#include "adapters/adapter.h"

namespace graft::adapters {

/// Adds to the adapter the parts that its others' starts ask for.
void add_changed_bases(Adapter& adapter, const PreTrainedModel& model,
                       const std::function<PartBuild(const Target&)>& build);

}  // namespace graft::adapters
