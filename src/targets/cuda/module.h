// CUDA C++ to a kernel that can be launched: NVRTC, and the code kept on disk.
#pragma once
#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "codegen/kernel.h"
#include "runtime/launcher.h"
#include "targets/cuda_code/code.h"

namespace graft::cuda {

/// What code made here depends on in addition to its text: NVRTC and the GPU.
const std::string& code_fingerprint();

/// The machine code of a kernel for this GPU.
std::string compile_text(const std::string& text);

/// Of that machine code in the disk cache.
std::string key_of(const std::string& text);
/// From there, or made and put there.
std::string compiled_once(const std::string& text);

/// A function of machine code, on this GPU.
class LoadedKernel {
 public:
  LoadedKernel(std::string object, const char* name);
  ~LoadedKernel();
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  /// It begins with begin() (expressions.h). `arguments`: the address of each.
  void launch(Shape shape, void** arguments, void* stream) const;

 private:
  std::string object_;
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
};

/// Ready to be launched on this GPU, as one.
std::shared_ptr<const Launcher> make_launcher(const Kernels& kernels, const std::string& object);

}  // namespace graft::cuda
