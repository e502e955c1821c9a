// Which layers of a model an adapter is put on, by PEFT's rules.
#pragma once
#include "adapters/method.h"
#include "graft/model.h"

namespace graft::adapters {

/// Every layer with a weight, by path; wrappers are left out.
std::vector<Target> weighted_layers(const PreTrainedModel& model);

/// `target_modules` as it is for this model: the method's defaults where the config has none, and
/// "all-linear" written out. Long lists become short ones of the same meaning, as in PEFT.
AdapterConfig with_targets(const AdapterConfig& config, const PreTrainedModel& model);

/// The layers that the method is put on. ConfigError: a name that matched nothing, a module that is no layer,
/// nothing left.
std::vector<Target> adapted_layers(const AdapterConfig& config, const PreTrainedModel& model);

/// The layers under `modules_to_save`: trained whole, and kept in the adapter's file.
std::vector<Target> saved_layers(const AdapterConfig& config, const PreTrainedModel& model);

}  // namespace graft::adapters
