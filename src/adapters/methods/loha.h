// LoHa: W + scaling (A1 B1) * (A2 B2), the product of two low-rank matrices element by element.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method loha_method();

}  // namespace graft::adapters
