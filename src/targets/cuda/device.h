// The GPUs of this machine, for the runtime.
#pragma once
#include "runtime/device.h"

namespace graft::cuda {

const runtime::Device& device(int index);

}  // namespace graft::cuda
