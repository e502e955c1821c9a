// BEFT (Huang et al. 2025): a bias added to what a layer gives.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method beft_method();

}  // namespace graft::adapters
