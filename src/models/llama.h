// Llama: RMS norm, rotary positions, grouped-query attention, SwiGLU.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> llama_architectures();
}
