// SHiRA: a few entries of a weight, chosen once, are trained: what is added to the weight is sparse.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method shira_method();

}  // namespace graft::adapters
