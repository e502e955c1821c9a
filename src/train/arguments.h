// TrainingArguments: what is refused, and what checkpoints keep of them.
#pragma once
#include <nlohmann/json.hpp>

#include "graft/trainer.h"

namespace graft::train {

/// UsageError for values that no run can have.
void check_arguments(const TrainingArguments& arguments);

/// What max_steps or num_train_epochs come to; UsageError where that is no number of steps.
int64_t count_steps(const TrainingArguments& arguments, int64_t updates_per_epoch);

/// Tells data from others: by TrainingData::fingerprint(), else by how many batches there are and the first.
std::string mark_of(const TrainingData& data);

/// What decides how a run goes; kept with its checkpoints. The marks are of the data to train on and to
/// evaluate on, the second empty where there are none.
nlohmann::json arguments_json(const TrainingArguments& arguments, int64_t max_steps, int64_t batches,
                              const std::string& data, const std::string& eval_data);

/// Changing them on purpose is fine, but then the run is not the one it would have been.
void warn_of_other_arguments(const nlohmann::json& before, const nlohmann::json& now);
/// Whether evaluations of the one run cannot be compared with those of the other.
bool evaluates_on_other_data(const nlohmann::json& before, const nlohmann::json& now);

}  // namespace graft::train
