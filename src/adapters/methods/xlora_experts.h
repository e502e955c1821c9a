// The LoRA adapters that an X-LoRA adapter chooses among: folders that its configuration names.
#pragma once
#include "adapters/adapter.h"

namespace graft::adapters {

struct Expert {
  std::string folder;
  AdapterConfig config;                           ///< with its targets
  std::shared_ptr<GivenSource> source = nullptr;  ///< its file, where it is opened
};

/// In the order of the classifier's results. ConfigError for one that is not plain LoRA.
std::vector<Expert> read_experts(const AdapterConfig& config, const PreTrainedModel& model);

}  // namespace graft::adapters
