// PEFT's "ensure_weight_tying": what an adapter does to the input embedding, the layers that share its weight
// do too.
#pragma once
#include "adapters/adapter.h"

namespace graft::adapters {

/// The configuration as PEFT makes it before it builds such an adapter: the embedding is named, and who
/// shares its weight is not, where one of them is named as PEFT knows them. Either the whole weights
/// ("modules_to_save") are tied or what "target_modules" asks for, or neither.
struct TiedNames {
  AdapterConfig config;
  bool targets = false, saved = false;
};
TiedNames with_tied_names(const AdapterConfig& config, const PreTrainedModel& model);

/// LoRA on a layer that follows the embedding's, whose tensors it has, turned round.
std::shared_ptr<Part> tied_lora_part(const PartBuild& build, const Part& embedding);

/// ConfigError for tokens that are other ones in layers that share a weight; a warning where one of two such
/// layers has an adapter and the other has none all the same.
void check_tying(const Adapter& adapter, const PreTrainedModel& model);

}  // namespace graft::adapters
