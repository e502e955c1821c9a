// FRoD: rotates and scales the weight in a basis that layers of one kind share.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method frod_method();

}  // namespace graft::adapters
