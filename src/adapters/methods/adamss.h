// AdaMSS: an output's row gets a low-rank change within the subspace that its group of rows shares.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method adamss_method();

}  // namespace graft::adapters
