// The CPU that this process runs on, for the runtime.
#pragma once
#include <functional>

#include "runtime/device.h"

namespace graft::cpu {

const runtime::Device& device();

/// By the host's clock, in seconds.
double time_of(const std::function<void()>& body);

}  // namespace graft::cpu
