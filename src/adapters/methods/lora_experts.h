// The LoRA adapters that another adapter chooses among (X-LoRA, Arrow): folders that its configuration names.
#pragma once
#include "adapters/adapter.h"
#include "adapters/methods/lora.h"

namespace graft::adapters {

struct Expert {
  std::string folder;
  AdapterConfig config;
  std::shared_ptr<GivenSource> source = nullptr;  ///< its file, where it is opened

  /// Its part on the layer that is built; null where it has none there.
  std::shared_ptr<LoraPart> part(const PartBuild& build, std::string_view key) const;
};

/// ConfigError for one that is not plain LoRA: `who` chooses among such.
AdapterConfig plain_lora(const std::string& folder, std::string_view who);

/// X-LoRA's, with their targets, in the order of the classifier's results.
std::vector<Expert> read_experts(const AdapterConfig& config, const PreTrainedModel& model);

/// Each has given all that its file holds: FormatError for one that has not. Their files are let go of.
void finish_experts(std::vector<Expert>& experts, const PreTrainedModel& model);

}  // namespace graft::adapters
