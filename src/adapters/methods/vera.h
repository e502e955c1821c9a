// VeRA: y = W x + b * (B (d * (A x))). A and B are random, frozen and shared by all layers; the vectors b and
// d are trained.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method vera_method();

}  // namespace graft::adapters
