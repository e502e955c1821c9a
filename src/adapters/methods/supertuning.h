// Super-Tuning: trains the largest entries of the weight, with or without a LoRA beside them.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method supertuning_method();

}  // namespace graft::adapters
