// Prefix tuning (Li and Liang 2021): keys and values before every layer's own, trained themselves or through
// an MLP.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method prefix_tuning_method();

}  // namespace graft::adapters
