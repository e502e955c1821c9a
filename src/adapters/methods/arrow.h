// Arrow: a router over LoRA adapters. Each token of a layer's input goes to those adapters along whose main
// direction it points most; nothing is trained.
#pragma once
#include <filesystem>

#include "adapters/method.h"

namespace graft::adapters {

/// "arrow_config" and what is in it.
Field arrow_field();
bool is_arrow(const AdapterConfig& config);
/// ConfigError for values it cannot have, and for fields that a router makes no use of.
void check_arrow(const AdapterConfig& config);

/// The names of a router's adapters are folders: those beside its own, as PEFT saves them, or any others. The
/// same configuration with the former as whole paths, for a file that lies at `path`.
AdapterConfig with_folders(const AdapterConfig& config, const std::filesystem::path& path);
/// Where "target_modules" is not set: the layers and the rank of its adapters, as in PEFT's
/// create_arrow_model().
AdapterConfig with_layers_of_experts(const AdapterConfig& config);

/// Its adapters' files; null for any other LoRA.
std::shared_ptr<Shared> arrow_experts(const AdapterConfig& config);
std::shared_ptr<Part> arrow_part(const PartBuild& build);

}  // namespace graft::adapters
