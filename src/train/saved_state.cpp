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

}  // namespace

void save_state(const std::filesystem::path& dir, const Subject& subject, const Stepper& stepper) {
  subject.save(dir);
  save_safetensors(dir / kOptimizer, stepper.state());
  NamedTensors random;
  for (auto& [name, generator] : generators(subject)) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    random.emplace_back(name, generator.get_state());
  }
  save_safetensors(dir / kRandom, random);
  if (const auto buffers = subject.unsaved(); !buffers.empty()) save_safetensors(dir / kBuffers, buffers);
}

void load_state(const std::filesystem::path& dir, const Subject& subject, Stepper& stepper) {
  stepper.restore(*SafetensorsFile::open(dir / kOptimizer));
  const auto random = SafetensorsFile::open(dir / kRandom);
  for (auto& [name, generator] : generators(subject)) {
    if (!random->contains(name)) continue;  // written on another kind of device: that stream begins anew
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(random->tensor(name).clone());
  }
  const auto buffers = subject.unsaved();
  if (buffers.empty()) return;
  const auto file = SafetensorsFile::open(dir / kBuffers);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : buffers) tensor.copy_(file->tensor(name));
}

}  // namespace graft::train
