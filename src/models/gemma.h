// Gemma: norms that multiply by 1 + weight, embeddings scaled by the square root of their width.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> gemma_architectures();
}
