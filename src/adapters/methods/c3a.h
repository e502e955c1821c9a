// C3A: what is added to a weight consists of circulant blocks, each given by one trained row: multiplying
// with it is a circular convolution.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method c3a_method();

}  // namespace graft::adapters
