// Mistral: Llama with a sliding window in every layer.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> mistral_architectures();
}
