// Lily (Zhong et al. 2024): LoRA whose halves several layers share, mixed by a router.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method lily_method();

}  // namespace graft::adapters
