// GPT-2: learned positions, LayerNorm before each block, one projection for queries, keys and values.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> gpt2_architectures();
}
