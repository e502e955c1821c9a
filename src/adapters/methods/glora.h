// GLoRA (Chavan et al. 2023): scales and shifts a layer's weight and bias.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method glora_method();

}  // namespace graft::adapters
