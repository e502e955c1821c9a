// DeLoRA (Bini et al. 2025): LoRA whose strength is apart from its direction, bounded by a trained number.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method delora_method();

}  // namespace graft::adapters
