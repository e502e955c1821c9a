// OFT: y = W (R x) + b with R a rotation in blocks: what a layer sees is turned, lengths and angles stay.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method oft_method();

}  // namespace graft::adapters
