// OSF: trains the smallest singular vectors of the weight, at right angles to the largest.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method osf_method();

}  // namespace graft::adapters
