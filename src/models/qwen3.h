// Qwen3: Qwen2 with norms on the heads of queries and keys, and biases only where the config has them.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> qwen3_architectures();
}
