// X-LoRA: a classifier of the base's hidden states says how much each token takes of several LoRA adapters.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method xlora_method();

}  // namespace graft::adapters
