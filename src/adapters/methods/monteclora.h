// MonteCLoRA: LoRA whose A is drawn anew in each training call, around what is learnt; at inference it is
// plain LoRA.
#pragma once
#include "adapters/methods/lora.h"

namespace graft::adapters {

/// "monteclora_config" and what is in it.
Field monteclora_field();
/// ConfigError for values it cannot have.
void check_monteclora(const AdapterConfig& config);

std::shared_ptr<Part> monteclora_part(const PartBuild& build);

}  // namespace graft::adapters
