// Multitask prompt tuning: one prompt for all tasks, times a low-rank matrix of each row's own task.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method multitask_prompt_tuning_method();

}  // namespace graft::adapters
