#include "verify/generator_states.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/equal.h>

#include <mutex>
#include <set>
#include <utility>

namespace graft::verify {

GeneratorStates::GeneratorStates(const std::vector<at::Generator>& generators,
                                 const std::vector<at::Tensor>& inputs) {
  const auto save = [&](at::Generator generator) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    saved_.push_back({generator, generator.get_state()});
  };
  std::set<at::Device, bool (*)(const at::Device&, const at::Device&)> devices(
      [](const at::Device& a, const at::Device& b) {
        return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
      });
  devices.insert(at::kCPU);
  for (const auto& input : inputs)
    if (input.defined() && at::isAccelerator(input.device().type())) devices.insert(input.device());
  for (const auto& device : devices) save(at::globalContext().defaultGenerator(device));
  for (const auto& generator : generators) save(generator);
}

void GeneratorStates::add(const std::vector<at::Generator>& generators,
                          const std::vector<at::Tensor>& states) {
  for (size_t i = 0; i < generators.size(); ++i) saved_.push_back({generators[i], states[i]});
}

bool GeneratorStates::is_now() const {
  for (auto [generator, state] : saved_) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    if (!at::equal(generator.get_state(), state)) return false;
  }
  return true;
}

void GeneratorStates::restore() const {
  for (auto [generator, state] : saved_) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
}

}  // namespace graft::verify
