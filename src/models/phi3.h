// Phi-3: fused projections, and heads of which only a part may rotate.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> phi3_architectures();
}
