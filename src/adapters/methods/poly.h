// Poly: LoRA adapters (skills) on linear layers, mixed by what a router has learnt of each row's task.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method poly_method();

}  // namespace graft::adapters
