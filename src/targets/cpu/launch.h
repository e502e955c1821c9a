// A kernel's machine code on torch's threads.
#pragma once
#include <memory>

#include "runtime/launcher.h"
#include "targets/cpu/kernels.h"

namespace graft::cpu {

std::shared_ptr<const Launcher> make_launcher(MachineKernel kernel);

}  // namespace graft::cpu
