#include "train/saved_state.h"

#include <ATen/ATen.h>

#include <mutex>

#include "graft/error.h"

namespace graft::train {
namespace {

constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kRandom = "rng_state.safetensors";
constexpr const char* kBuffers = "buffers.safetensors";

/// torch's default generators that a step may draw from.
std::vector<std::pair<std::string, at::Generator>> generators(const Subject& subject) {
  std::vector<std::pair<std::string, at::Generator>> all{
      {"cpu", at::globalContext().defaultGenerator(at::kCPU)}};
  if (const auto device = subject.model().device(); !device.is_cpu())
    all.emplace_back("device", at::globalContext().defaultGenerator(device));
  return all;
}

std::string of_rank(const std::string& name, int rank) {
  return rank == 0 ? name : name + "." + std::to_string(rank);
}

}  // namespace

StepState step_state(const Subject& subject, const Stepper& stepper, ProcessGroup& group) {
  StepState state{stepper.state(), {}};
  for (auto& [name, generator] : generators(subject)) {
    at::Tensor mine;
    {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      mine = generator.get_state();
    }
    const auto all = group.all_gather(mine);
    for (size_t rank = 0; rank < all.size(); ++rank)
      state.random.emplace_back(of_rank(name, static_cast<int>(rank)), all[rank]);
  }
  return state;
}

void save_state(const std::filesystem::path& dir, const Subject& subject, const StepState& state) {
  subject.save(dir);
  save_safetensors(dir / kOptimizer, state.optimizer);
  save_safetensors(dir / kRandom, state.random);
  if (const auto buffers = subject.unsaved(); !buffers.empty()) save_safetensors(dir / kBuffers, buffers);
}

void load_state(const std::filesystem::path& dir, const Subject& subject, Stepper& stepper, int rank) {
  stepper.restore(*SafetensorsFile::open(dir / kOptimizer));
  const auto random = SafetensorsFile::open(dir / kRandom);
  for (auto& [name, generator] : generators(subject)) {
    // A process more than there were begins where the first stood.
    const auto mine = random->contains(of_rank(name, rank)) ? of_rank(name, rank) : name;
    if (!random->contains(mine)) continue;  // written on another kind of device: that stream begins anew
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(random->tensor(mine).clone());
  }
  const auto buffers = subject.unsaved();
  if (buffers.empty()) return;
  const auto file = SafetensorsFile::open(dir / kBuffers);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : buffers) tensor.copy_(file->tensor(name));
}

}  // namespace graft::train
