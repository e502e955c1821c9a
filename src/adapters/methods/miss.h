// MiSS: one small block that every shard of the weight shares.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method miss_method();

}  // namespace graft::adapters
