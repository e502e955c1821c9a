// OPT: learned positions counted over the attention mask, LayerNorm before or after each block, optionally a
// narrower embedding.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> opt_architectures();
}
