// ViT: an image cut into patches, a class token in front, pre-norm layers.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> vit_architectures();
}
