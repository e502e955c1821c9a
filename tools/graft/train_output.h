// What graft train prints and reports when a run has come to its end, or to a stop.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "graft/trainer.h"

namespace graft::cli {

nlohmann::ordered_json to_json(const EvalMetrics& metrics);
/// The JSON of --report; `peak`: bytes beside the model's.
nlohmann::ordered_json report_of(const TrainOutput& out, const PreTrainedModel& model, int64_t peak);
/// Of all processes, by rank: what they `held` of the frozen weights between steps, and the most. Null where
/// none has a share only. For all processes to call.
nlohmann::ordered_json base_memory_of(const Trainer& trainer, int64_t held, ProcessGroup& group);

/// A line for each of them on standard output.
void print(const char* what, const nlohmann::ordered_json& metrics);
void say_how_to_resume(const std::string& output, const TrainOutput& out, int64_t max_steps, int signal);
/// What came of evaluations, where there were some.
void print_end(const TrainingArguments& arguments, const TrainOutput& out, int64_t max_steps);

}  // namespace graft::cli
