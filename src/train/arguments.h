// TrainingArguments: what is refused, and what checkpoints keep of them.
#pragma once
#include <nlohmann/json.hpp>

#include "graft/trainer.h"

namespace graft::train {

/// UsageError for values that no run can have.
void check_arguments(const TrainingArguments& arguments);

/// What decides how a run goes, and of the data how many batches an epoch has and a hash of the first; kept
/// with its checkpoints.
nlohmann::json arguments_json(const TrainingArguments& arguments, int64_t max_steps,
                              const TrainingData& data);

/// Changing them on purpose is fine, but then the run is not the one it would have been.
void warn_of_other_arguments(const nlohmann::json& before, const nlohmann::json& now);

}  // namespace graft::train
