// BOFT: y = s * W (R x) + b, with R a product of rotations in blocks that are interleaved like a butterfly's.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method boft_method();

}  // namespace graft::adapters
