// PVeRA (Leclercq et al. 2025): VeRA with a hidden layer that is drawn at random in training.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method pvera_method();

}  // namespace graft::adapters
