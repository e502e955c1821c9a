// LoRA on weights by their names ("target_parameters"), whatever layer they are of: W + scaling B A.
#pragma once
#include "adapters/methods/lora.h"

namespace graft::adapters {

/// ConfigError for what does not go with "target_parameters".
void check_target_parameters(const AdapterConfig& config);

/// The layers whose weights are named. ConfigError: a name that matched nothing, or something else than a
/// weight with rows and columns.
std::vector<Target> named_weights(const AdapterConfig& config, const PreTrainedModel& model);

std::shared_ptr<Part> lora_parameter_part(const PartBuild& build);

}  // namespace graft::adapters
