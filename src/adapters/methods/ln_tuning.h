// LN tuning: the normalisations' own weights and biases, trained.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method ln_tuning_method();

}  // namespace graft::adapters
