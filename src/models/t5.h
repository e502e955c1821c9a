// T5: an encoder and a decoder with relative positions, one table of tokens for both and for the output.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> t5_architectures();
}
