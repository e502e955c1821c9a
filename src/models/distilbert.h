// DistilBERT: BERT with fewer layers and no token types, under names of its own.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> distilbert_architectures();
}
