// Gemma 2: Gemma with norms before and after both blocks, a sliding window in every other layer, and scores
// and logits held under a cap.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> gemma2_architectures();
}
