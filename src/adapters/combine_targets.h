// What the combinations of each method share.
#pragma once
#include "adapters/combine.h"

namespace graft::adapters {

/// `config` with the layers that any of the adapters names under `field`: lists are joined, or patterns.
AdapterConfig with_all_modules(const std::vector<WeightedSource>& sources, const AdapterConfig& config,
                               std::string_view field);

/// For sources of which the first is IA3.
Combined combine_ia3(const std::vector<WeightedSource>& sources, const CombineOptions& options);

}  // namespace graft::adapters
