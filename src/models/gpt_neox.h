// GPT-NeoX (Pythia): attention and feed-forward side by side, heads of which a part rotates.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> gpt_neox_architectures();
}
