#include "targets/cuda/module.h"

#include <cuda_runtime.h>
#include <nvrtc.h>

#include <vector>

#include "graft/error.h"
#include "targets/cuda_code/code.h"

namespace graft::cuda {
namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(status));
}

std::string architecture() {
  int device = 0, major = 0, minor = 0;
  check(cudaGetDevice(&device), "no GPU");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "no GPU");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "no GPU");
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

class CudaLauncher : public Launcher {
 public:
  CudaLauncher(const std::string& object, Shape shape, size_t buffers)
      : object_(object), shape_(shape), buffers_(buffers) {
    check(cudaLibraryLoadData(&library_, object_.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
          "the code of a kernel does not load");
    check(cudaLibraryGetKernel(&kernel_, library_, "kernel"), "a kernel is not in its code");
  }
  ~CudaLauncher() override { cudaLibraryUnload(library_); }

  void launch(const Launch& launch) const override {
    std::vector<void*> arguments(buffers_ + 2);
    for (size_t i = 0; i < buffers_; ++i) arguments[i] = const_cast<void**>(&launch.buffers[i]);
    auto* failed = launch.failed;
    auto mark = launch.mark;
    arguments[buffers_] = static_cast<void*>(&failed);
    arguments[buffers_ + 1] = static_cast<void*>(&mark);
    check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel_), dim3(static_cast<unsigned>(shape_.blocks)),
                           dim3(static_cast<unsigned>(shape_.threads)), arguments.data(), 0,
                           static_cast<cudaStream_t>(launch.stream)),
          "a kernel cannot be launched");
  }

 private:
  std::string object_;
  Shape shape_;
  size_t buffers_;
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
};

}  // namespace

const std::string& code_fingerprint() {
  static const std::string text = [] {
    int major = 0, minor = 0;
    nvrtcVersion(&major, &minor);
    return "nvrtc " + std::to_string(major) + "." + std::to_string(minor) + " " + architecture();
  }();
  return text;
}

std::string compile_text(const std::string& text) {
  nvrtcProgram program = nullptr;
  if (nvrtcCreateProgram(&program, text.c_str(), "kernel.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS)
    throw Error("[cuda] NVRTC does not start");
  const auto arch = "--gpu-architecture=" + architecture();
  // Values are the same wherever they are computed: products and sums are not contracted.
  const std::vector<const char*> options = {arch.c_str(), "--fmad=false", "--std=c++17"};
  const auto status = nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  if (status != NVRTC_SUCCESS) {
    nvrtcGetProgramLogSize(program, &size);
    std::string log(size, ' ');
    nvrtcGetProgramLog(program, log.data());
    nvrtcDestroyProgram(&program);
    throw Error("[cuda] NVRTC refuses the code of a kernel; this is a bug in graft: " + log + "\n" + text);
  }
  nvrtcGetCUBINSize(program, &size);
  std::string object(size, '\0');
  nvrtcGetCUBIN(program, object.data());
  nvrtcDestroyProgram(&program);
  return object;
}

std::shared_ptr<const Launcher> make_launcher(const codegen::Kernel& kernel, const std::string& object) {
  return std::make_shared<CudaLauncher>(object, shape_of(kernel), kernel.buffers.size());
}

}  // namespace graft::cuda
