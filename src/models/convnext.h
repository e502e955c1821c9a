// ConvNeXT: depthwise convolutions and pointwise layers with layer norm, in stages that halve the image.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> convnext_architectures();
}
