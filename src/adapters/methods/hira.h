// HiRA: y = W x + (W * (B A)) x, the product with * taken entry by entry: a change of high rank from factors
// of low rank.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method hira_method();

}  // namespace graft::adapters
