// Qwen2: Llama with biases on queries, keys and values, and a sliding window in some layers where it is
// switched on.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> qwen2_architectures();
}
