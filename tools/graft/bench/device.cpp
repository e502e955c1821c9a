#include "bench/device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/cuda.h>

#include <filesystem>
#include <fstream>

#include "graft/error.h"

namespace graft::cli::bench {
namespace {

namespace fs = std::filesystem;

bool on_gpu(const std::string& device) { return at::Device(device).is_cuda(); }

}  // namespace

void require_device(const std::string& device) {
  if (on_gpu(device) && !torch::cuda::is_available())
    throw Error("[bench] --device " + device +
                ": no CUDA device is found here, or this libtorch was built without CUDA; --list shows the "
                "rows without one");
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", none)) {
    std::ifstream lines(gpu.path() / "information");
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("Model:")) names.push_back(line.substr(line.find_first_not_of(" \t", 6)));
  }
  return names;
}

void wait_for(const std::string& device) {
  if (on_gpu(device)) torch::cuda::synchronize();
}

nlohmann::ordered_json peak_of(const std::string& device, const std::function<void()>& call) {
  if (!on_gpu(device)) return nlohmann::ordered_json::object();
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  auto* memory = c10::getDeviceAllocator(c10::kCUDA);
  // What earlier calls left behind is not this call's.
  memory->emptyCache();
  memory->resetPeakStats(0);
  call();
  wait_for(device);
  const auto stats = memory->getDeviceStats(0);
  return {{"peak_bytes", stats.reserved_bytes[kAll].peak},
          {"allocated_bytes", stats.allocated_bytes[kAll].peak}};
}

}  // namespace graft::cli::bench
