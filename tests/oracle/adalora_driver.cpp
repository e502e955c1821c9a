// AdaLoRA's budget over steps that PEFT made: the weights and gradients of each step come from a file.
//   adalora_driver MODEL ADAPTER in.safetensors out.safetensors STEPS
// in:  STEP.value.KEY and STEP.grad.KEY for every tensor of the adapter; out: STEP.KEY after the step's
// allocation, and stored.KEY, what the adapter's file would get after the last. Prints the adapter's
// configuration.
#include <torch/types.h>

#include <iostream>

#include "adapters/adapter.h"
#include "adapters/methods/adalora.h"
#include "graft/graft.h"

int main(int argc, char** argv) try {
  if (argc != 6) throw std::runtime_error("see the top of its source");
  const auto model = graft::AutoModelForAny::from_pretrained(argv[1]);
  const auto steps = graft::SafetensorsFile::open(argv[3]);
  auto source = graft::adapters::GivenSource::open(argv[2]);
  const auto adapter = graft::adapters::build_adapter(
      "default", graft::AdapterConfig::from_pretrained(argv[2]), *model, source);
  graft::NamedTensors results;
  for (int64_t step = 0; step < std::stoll(argv[5]); ++step) {
    const auto number = std::to_string(step);
    for (auto& named : adapter->tensors()) {
      named.tensor.copy_(steps->tensor(number + ".value." + named.key));
      named.tensor.mutable_grad() = steps->tensor(number + ".grad." + named.key);
    }
    graft::adapters::update_and_allocate(*adapter, step);
    for (const auto& named : adapter->tensors())
      results.emplace_back(number + "." + named.key, named.tensor.detach().clone());
  }
  for (const auto& [key, tensor] : adapter->state_dict()) results.emplace_back("stored." + key, tensor);
  graft::save_safetensors(argv[4], results);
  std::cout << adapter->config.dump();
  return 0;
} catch (const std::exception& error) {
  std::cerr << "adalora_driver: " << error.what() << "\n";
  return 1;
}
