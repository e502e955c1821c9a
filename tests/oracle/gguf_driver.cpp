// What graft makes of a GGUF file, for test_gguf_live.py.
//   gguf_driver config FILE          the config, as JSON
//   gguf_driver tensors FILE OUT     the tensors under their own names, unpacked, as safetensors
//   gguf_driver weights FILE OUT     the same under transformers' names, as a model gets them
#include <iostream>

#include "graft/config.h"
#include "graft/safetensors.h"
#include "models/gguf_weights.h"

namespace {

void tensors(const std::string& from, const std::string& to) {
  const auto file = graft::io::GgufFile::open(from);
  graft::NamedTensors all;
  for (const auto& tensor : file->header().tensors)
    all.emplace_back(tensor.name, graft::io::dequantized(tensor.type, file->bytes(tensor)));
  graft::save_safetensors(to, all);
}

void weights(const std::string& from, const std::string& to) {
  const graft::GgufWeights weights(graft::io::GgufFile::open(from));
  graft::NamedTensors all;
  for (const auto& name : weights.names()) all.emplace_back(name, weights.tensor(name));
  graft::save_safetensors(to, all);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "config" && argc == 3) return std::cout << graft::Config::from_pretrained(argv[2]).dump(), 0;
    if (what == "tensors" && argc == 4) return tensors(argv[2], argv[3]), 0;
    if (what == "weights" && argc == 4) return weights(argv[2], argv[3]), 0;
    std::cerr << "gguf_driver: see the top of its source\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "gguf_driver: " << error.what() << "\n";
    return 1;
  }
}
