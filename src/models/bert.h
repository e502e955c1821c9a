// BERT: learned positions and token types, post-norm layers, tanh pooler; also as a decoder ("is_decoder").
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> bert_architectures();
}
