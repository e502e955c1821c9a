// PSOFT: rotates the weight within the space of its largest singular vectors.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method psoft_method();

}  // namespace graft::adapters
