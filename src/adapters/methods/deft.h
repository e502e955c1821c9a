// DEFT (Kumar et al. 2025): takes a low-rank subspace out of the weight and puts something else there.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method deft_method();

}  // namespace graft::adapters
