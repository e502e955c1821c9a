// Layers that an adapter brings whole: `modules_to_save`, LN tuning, and biases trained beside an adapter.
#pragma once
#include "adapters/part.h"

namespace graft::adapters {

/// The layer with a weight and a bias of the adapter's own, fresh ones copies of the base's in its dtype.
/// `prefix` comes before their names in the file.
std::shared_ptr<Part> replacement_part(const PartBuild& build, const std::string& prefix = "");
/// The layer with a bias of the adapter's own; `suffix` is its name in the file ("base_layer.bias", "bias").
std::shared_ptr<Part> bias_part(const PartBuild& build, const std::string& suffix);

}  // namespace graft::adapters
