// How a fresh LoRA adapter is filled: PEFT's `init_lora_weights`.
//
// With the same seed and model the numbers are PEFT's own: what torch's layers draw in their constructors is
// drawn here too, though it is overwritten.
#pragma once
#include "adapters/methods/lora.h"

namespace graft::adapters {

/// The fields that say how such an init goes, where it needs more than its name.
std::vector<Field> lora_start_fields();

/// Whether the init takes a part out of the base.
bool starts_from_base(const AdapterConfig& config);

/// Of a linear layer PiSSA and OLoRA take at most as much as it has: the factors are no larger then, whatever
/// the rank that the scaling goes by.
int64_t start_rank(const PartBuild& build, int64_t r);

/// ConfigError for a value of `init_lora_weights` that is not known.
void check_lora_init(const AdapterConfig& config);
void initialise_lora(LoraPart& part, const PartBuild& build);
/// An adapter that was made with PiSSA or OLoRA goes with a base from which its start was taken out; that is
/// computed again from the base.
void restore_lora_base(LoraPart& part, const PartBuild& build);

}  // namespace graft::adapters
