// Uni-LoRA (Li et al. 2025): all entries of all LoRA matrices are taken from one short vector.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method unilora_method();

}  // namespace graft::adapters
