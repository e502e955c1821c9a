// A progress bar on standard error, only when a person watches.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "graft/trainer.h"

namespace graft::cli {

/// A callback for (done, total) that draws "label [####    ] 42 %"; an empty function when standard error is
/// not a terminal.
std::function<void(int64_t, int64_t)> progress_bar(const std::string& label);

/// One line, drawn again after each step: loss, tokens a second, time left. Nothing when standard error is
/// not a terminal.
std::function<void(const TrainingStep&)> training_progress();

}  // namespace graft::cli
