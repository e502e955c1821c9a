// DINOv2: ViT's attention with a scale on each residual, positions stretched to the image, and for its
// largest checkpoints a gated feed-forward network.
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> dinov2_architectures();
}
