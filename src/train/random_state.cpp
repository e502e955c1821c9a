#include "train/random_state.h"

#include <ATen/ATen.h>
#include <torch/cuda.h>

#include <algorithm>
#include <mutex>

namespace graft::train {
namespace {

struct Named {
  std::string name;
  at::Generator generator;
};

/// Those of this process: on the CPU and, where there are any, on the GPUs.
std::vector<Named> generators() {
  std::vector<Named> all{{"cpu", at::globalContext().defaultGenerator(at::kCPU)}};
  if (!torch::cuda::is_available()) return all;
  at::globalContext().lazyInitDevice(at::kCUDA);
  for (at::DeviceIndex i = 0; i < torch::cuda::device_count(); ++i) {
    const at::Device device(at::kCUDA, i);
    all.push_back({device.str(), at::globalContext().defaultGenerator(device)});
  }
  return all;
}

std::string of_rank(const std::string& name, size_t rank) {
  return rank == 0 ? name : name + "." + std::to_string(rank);
}

}  // namespace

NamedTensors random_state(ProcessGroup& group) {
  auto mine = generators();
  // Processes may see different numbers of GPUs, and all must make the same calls.
  size_t common = mine.size();
  for (const auto& count : group.all_gather(at::scalar_tensor(static_cast<int64_t>(mine.size()), at::kLong)))
    common = std::min(common, static_cast<size_t>(count.item<int64_t>()));
  NamedTensors states;
  for (size_t i = 0; i < common; ++i) {
    at::Tensor state;
    {
      const std::lock_guard<std::mutex> lock(mine[i].generator.mutex());
      state = mine[i].generator.get_state();
    }
    const auto all = group.all_gather(state);
    for (size_t rank = 0; rank < all.size(); ++rank)
      states.emplace_back(of_rank(mine[i].name, rank), all[rank]);
  }
  return states;
}

void restore_random_state(const SafetensorsFile& from, int rank) {
  for (auto& [name, generator] : generators()) {
    const auto own = of_rank(name, static_cast<size_t>(rank));
    const auto& found = from.contains(own) ? own : name;
    if (!from.contains(found)) continue;
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(from.tensor(found).clone());
  }
}

}  // namespace graft::train
