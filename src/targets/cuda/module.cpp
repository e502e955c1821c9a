#include "targets/cuda/module.h"

#include <cuda_runtime.h>
#include <nvrtc.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "cache/disk_cache.h"
#include "graft/error.h"
#include "support/hash.h"

namespace graft::cuda {
namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(status));
}

/// 90 for compute capability 9.0.
int capability() {
  int device = 0, major = 0, minor = 0;
  check(cudaGetDevice(&device), "no GPU");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "no GPU");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "no GPU");
  return 10 * major + minor;
}

std::string architecture() { return "sm_" + std::to_string(capability()); }

class CudaLauncher : public Launcher {
 public:
  CudaLauncher(const Kernels& kernels, const std::string& object)
      : code_(object, "kernel"), shape_(shape_of(kernels)) {
    for (const auto* kernel : kernels) buffers_ += kernel->buffers.size();
    if (asks_for_alignment(function_of(kernels)))
      for (const auto* kernel : kernels) kernels_.push_back(*kernel);
  }

  void launch(const Launch& launch) const override {
    auto* failed = launch.failed;
    auto mark = launch.mark;
    int unless_failed = launch.unless_failed;
    std::vector<void*> arguments(buffers_);
    for (size_t i = 0; i < buffers_; ++i) arguments[i] = const_cast<void**>(&launch.buffers[i]);
    arguments.insert(arguments.end(), {&failed, &mark, &unless_failed});
    code_for(launch).launch(shape_, arguments.data(), launch.stream);
  }

 private:
  /// Buffers that begin elsewhere are rare: views, and a caller's own memory.
  const LoadedKernel& code_for(const Launch& launch) const {
    constexpr uintptr_t asked_for = 16;
    const auto is_aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % asked_for == 0; };
    if (kernels_.empty() || std::all_of(launch.buffers, launch.buffers + buffers_, is_aligned)) return code_;
    const std::lock_guard<std::mutex> lock(guard_);
    if (!for_any_) {
      Kernels kernels;
      for (const auto& kernel : kernels_) kernels.push_back(&kernel);
      for_any_ = std::make_unique<LoadedKernel>(compiled_once(code_for_any_alignment(kernels)), "kernel");
    }
    return *for_any_;
  }

  LoadedKernel code_;
  Shape shape_;
  size_t buffers_ = 0;                    // of all kernels
  std::vector<codegen::Kernel> kernels_;  // where their code asks for alignment
  mutable std::mutex guard_;
  mutable std::unique_ptr<LoadedKernel> for_any_;
};

}  // namespace

LoadedKernel::LoadedKernel(std::string object, const char* name) : object_(std::move(object)) {
  check(cudaLibraryLoadData(&library_, object_.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "the code of a kernel does not load");
  check(cudaLibraryGetKernel(&kernel_, library_, name), "a kernel is not in its code");
}

LoadedKernel::~LoadedKernel() { cudaLibraryUnload(library_); }

void LoadedKernel::launch(Shape shape, void** arguments, void* stream) const {
  static const bool overlaps = capability() >= 90;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.blocks_y),
                        static_cast<unsigned>(shape.blocks_z));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = overlaps ? 1 : 0;
  check(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel_), arguments),
        "a kernel cannot be launched");
}

std::string key_of(const std::string& text) { return hex(hash128({code_fingerprint(), text})); }

std::string compiled_once(const std::string& text) {
  const auto key = key_of(text);
  if (auto kept = cache::shared_cache().get(key)) return std::move(*kept);
  auto made = compile_text(text);
  cache::shared_cache().put(key, made);
  return made;
}

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
  // Values are the same wherever they are computed: products and sums are not contracted. Lambdas that are
  // templates cannot be marked as code for the device.
  const std::vector<const char*> options = {arch.c_str(), "--fmad=false", "--std=c++17",
                                            "--device-as-default-execution-space"};
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

std::shared_ptr<const Launcher> make_launcher(const Kernels& kernels, const std::string& object) {
  return std::make_shared<CudaLauncher>(kernels, object);
}

}  // namespace graft::cuda
