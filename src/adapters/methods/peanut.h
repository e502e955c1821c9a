// PEANuT (Zhong et al. 2024): the weight's change is a small network's answer to the weight.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method peanut_method();

}  // namespace graft::adapters
