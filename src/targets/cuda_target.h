// The target for NVIDIA GPUs: NVRTC's code, or the stub that stands in for it in a build without CUDA.
#pragma once
#include "targets/target.h"

namespace graft::cuda {

const Target& target();

}  // namespace graft::cuda
