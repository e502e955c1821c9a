// The C++ side of test_safetensors_live.py.
//   safetensors_copy IN OUT                 SafetensorsFile to save_safetensors
//   safetensors_copy IN OUT --shards BYTES  Checkpoint to save_checkpoint; OUT is a folder
//   safetensors_copy --list                 per path on stdin one line: {"error": ...} or {"tensors": ...}
//   safetensors_copy --rss IN               reads every tensor; prints the growth of anonymous memory
#include <ATen/ATen.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "graft/error.h"
#include "graft/safetensors.h"

namespace {

template <class Source>
graft::NamedTensors all_tensors(const Source& source) {
  graft::NamedTensors tensors;
  for (const auto& name : source.names()) tensors.emplace_back(name, source.tensor(name));
  return tensors;
}

nlohmann::json describe(const std::string& path) try {
  const auto file = graft::SafetensorsFile::open(path);
  nlohmann::json tensors = nlohmann::json::object();
  for (const auto& name : file->names()) {
    const auto info = file->info(name);
    tensors[name] = {{"dtype", info.dtype}, {"shape", info.shape}};
  }
  return {{"tensors", tensors}, {"metadata", file->metadata()}};
} catch (const graft::FormatError& error) {
  return {{"error", error.what()}};
}

int64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "RssAnon:") {
      int64_t kilobytes;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return -1;
}

void print_growth(const std::string& path) {
  at::ones({1000}).sum();  // whatever torch sets up at its first call is not ours
  const int64_t before = anonymous_bytes();
  const auto checkpoint = graft::Checkpoint::open(path);
  const auto tensors = all_tensors(checkpoint);
  double total = 0;
  for (const auto& [name, tensor] : tensors) total += tensor.max().item<double>();
  std::printf("%lld\n", static_cast<long long>(anonymous_bytes() - before));
  std::fprintf(stderr, "read %zu tensors, sum of maxima %g\n", tensors.size(), total);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "--list") {
    for (std::string path; std::getline(std::cin, path);) std::cout << describe(path).dump() << "\n";
  } else if (args.size() == 2 && args[0] == "--rss") {
    print_growth(args[1]);
  } else if (args.size() == 2) {
    const auto file = graft::SafetensorsFile::open(args[0]);
    graft::save_safetensors(args[1], all_tensors(*file), file->metadata());
  } else if (args.size() == 4 && args[2] == "--shards") {
    const auto checkpoint = graft::Checkpoint::open(args[0]);
    graft::save_checkpoint(args[1], all_tensors(checkpoint), checkpoint.metadata(), std::stoull(args[3]));
  } else {
    std::fprintf(stderr, "usage: see the top of safetensors_copy.cpp\n");
    return 2;
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
