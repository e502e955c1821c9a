#include "train/saved_state.h"

#include <ATen/ATen.h>

#include "train/random_state.h"

namespace graft::train {
namespace {

constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kBuffers = "buffers.safetensors";

}  // namespace

StepState step_state(const Stepper& stepper, ProcessGroup& group) {
  return {stepper.state(), random_state(group)};
}

void save_state(const std::filesystem::path& dir, const Subject& subject, const StepState& state) {
  subject.save(dir);
  save_safetensors(dir / kOptimizer, state.optimizer);
  save_safetensors(dir / kRandomFile, state.random);
  if (const auto buffers = subject.unsaved(); !buffers.empty()) save_safetensors(dir / kBuffers, buffers);
}

void load_state(const std::filesystem::path& dir, const Subject& subject, Stepper& stepper, int rank) {
  stepper.restore(*SafetensorsFile::open(dir / kOptimizer));
  restore_random_state(*SafetensorsFile::open(dir / kRandomFile), rank);
  const auto buffers = subject.unsaved();
  if (buffers.empty()) return;
  restore(buffers, *SafetensorsFile::open(dir / kBuffers));
}

}  // namespace graft::train
