// IA3: y = l * (W x + b), or y = W (l * x) + b on feed-forward layers; a factor for each feature.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method ia3_method();

}  // namespace graft::adapters
