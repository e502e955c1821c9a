// RoAd: pairs of the layer's outputs turned and scaled, each by an angle and a factor of its own.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method road_method();

}  // namespace graft::adapters
