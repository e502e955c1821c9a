// Prompt tuning (Lester et al. 2021): embeddings of virtual tokens, trained themselves.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method prompt_tuning_method();

}  // namespace graft::adapters
