// GraLoRA (Jung et al. 2025): a LoRA for each block of the weight, in a grid of blocks.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method gralora_method();

}  // namespace graft::adapters
