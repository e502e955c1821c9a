// Bloom: linear biases in place of positions, a norm right after the embeddings.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> bloom_architectures();
}
