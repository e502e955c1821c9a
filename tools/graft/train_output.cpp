#include "train_output.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iostream>

#include "graft/compile.h"
#include "report.h"
#include "stop_signals.h"
#include "support/counted.h"

namespace graft::cli {

nlohmann::ordered_json to_json(const EvalMetrics& metrics) {
  nlohmann::ordered_json json{{"loss", metrics.loss}};
  if (metrics.perplexity) json["perplexity"] = *metrics.perplexity;
  if (metrics.accuracy) json["accuracy"] = *metrics.accuracy;
  json["items"] = metrics.items;
  return json;
}

nlohmann::ordered_json report_of(const TrainOutput& out, const PreTrainedModel& model, int64_t peak) {
  nlohmann::ordered_json report{{"architecture", model.architecture()}};
  report["first_call_s"] = nullptr;
  report["compile_s"] = counters().compile_seconds;
  report["median_ms"] = nullptr;
  report["min_ms"] = nullptr;
  if (!out.step_seconds.empty()) report["first_call_s"] = out.step_seconds[0];
  // The first two steps are checked against eager where the model is compiled.
  if (out.step_seconds.size() > 2) {
    std::vector<double> times(out.step_seconds.begin() + 2, out.step_seconds.end());
    std::sort(times.begin(), times.end());
    report["median_ms"] = 1e3 * times[times.size() / 2];
    report["min_ms"] = 1e3 * times.front();
  }
  add_counters(report);
  report["peak_bytes"] = held_bytes(model) + peak;
  report["global_step"] = out.global_step;
  report["training_loss"] = out.training_loss;
  report["losses"] = out.losses;
  if (out.best_step) report["best_step"] = *out.best_step;
  if (out.stopped_early) report["stopped_early"] = true;
  return report;
}

nlohmann::ordered_json base_memory_of(const Trainer& trainer, int64_t held, ProcessGroup& group) {
  const auto mine = trainer.base_memory();
  if (mine.whole == 0) return nullptr;
  nlohmann::ordered_json report{
      {"whole", mine.whole}, {"held", nlohmann::json::array()}, {"peak", nlohmann::json::array()}};
  for (const auto& each : group.all_gather(at::tensor({held, mine.peak}))) {
    report["held"].push_back(each[0].item<int64_t>());
    report["peak"].push_back(each[1].item<int64_t>());
  }
  return report;
}

void print(const char* what, const nlohmann::ordered_json& metrics) {
  for (const auto& [name, value] : metrics.items()) std::cout << what << " " << name << ": " << value << "\n";
  std::cout << std::flush;
}

void say_how_to_resume(const std::string& output, const TrainOutput& out, int64_t max_steps, int signal) {
  std::cerr << "graft: stopped by " << signal_name(signal) << " after step " << out.global_step << " of "
            << max_steps << "; ";
  if (out.global_step > 0)
    std::cerr << "checkpoint-" << out.global_step << " is in " << output
              << ". Give the same command with --resume to go on\n";
  else
    std::cerr << "nothing was trained yet\n";
}

void print_end(const TrainingArguments& arguments, const TrainOutput& out, int64_t max_steps) {
  if (out.stopped_early)
    std::cout << "stopped early, after step " << out.global_step << " of " << max_steps << ": "
              << counted(arguments.early_stopping_patience, "evaluation") << " in a row had no lower loss\n";
  if (out.best_step)
    std::cout << "best evaluation: loss " << *out.best_metric << " after step " << *out.best_step
              << (arguments.load_best_model_at_end ? ", the model that was kept" : "") << "\n";
}

}  // namespace graft::cli
