// CUDA C++ to a kernel that can be launched: NVRTC, and the code kept on disk.
#pragma once
#include <memory>
#include <string>

#include "codegen/kernel.h"
#include "runtime/launcher.h"

namespace graft::cuda {

/// What code made here depends on in addition to its text: NVRTC and the GPU.
const std::string& code_fingerprint();

/// The machine code of a kernel for this GPU.
std::string compile_text(const std::string& text);

/// Ready to be launched on this GPU.
std::shared_ptr<const Launcher> make_launcher(const codegen::Kernel& kernel, const std::string& object);

}  // namespace graft::cuda
