// RoBERTa: BERT's layers, positions counted after the padding's own, a head with its own dense layer.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> roberta_architectures();
}
