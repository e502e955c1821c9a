// ResNet: convolutions with batch norm, residual blocks of two ("basic") or three ("bottleneck") of them.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> resnet_architectures();
}
