// How much work it is to load adapter after adapter: allocations, which no clock and no other program
// changes.
//   adapter_load_driver MODEL ADAPTER in.safetensors COUNT eager|compiled
// Prints {"load": [allocations of each load], "switch": [of set_adapter to it], "recompiles": n}. A compiled
// model has room for all of them and is called with the second and the last.
#include <ATen/ATen.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>

#include "graft/graft.h"

namespace {
std::atomic<int64_t> allocations{0};
}

// Replaces the program's operator new, also for the libraries it is linked with.
void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

template <class F>
int64_t allocations_of(F work) {
  const int64_t before = allocations;
  work();
  return allocations - before;
}

nlohmann::json load_many(char** argv) {
  const std::string dir = argv[2];
  const int count = std::stoi(argv[4]);
  const bool compiled = std::string(argv[5]) == "compiled";
  const auto peft = std::make_shared<graft::PeftModel>(graft::AutoModelForAny::from_pretrained(argv[1]));
  const graft::ModelInputs inputs{.input_ids = graft::SafetensorsFile::open(argv[3])->tensor("input_ids")};
  if (compiled) peft->reserve(static_cast<size_t>(count), graft::AdapterConfig::from_pretrained(dir));
  peft->eval();
  const auto fast = graft::compile(
      peft, {.backend = compiled ? graft::Backend::graft : graft::Backend::eager, .fullgraph = true});
  nlohmann::json found{{"load", nlohmann::json::array()}, {"switch", nlohmann::json::array()}};
  const at::NoGradGuard no_grad;
  for (int i = 1; i <= count; ++i) {
    const auto name = "adapter" + std::to_string(i);
    found["load"].push_back(allocations_of([&] { peft->load_adapter(dir, name); }));
    found["switch"].push_back(allocations_of([&] { peft->set_adapter(name); }));
    if (i == 2 || i == count) fast(inputs);
  }
  found["recompiles"] = graft::counters().recompiles;
  found["graphs"] = graft::counters().graphs;
  return found;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) return 2;
  std::cout << load_many(argv) << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
