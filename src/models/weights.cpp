#include "models/weights.h"

#include "io/format/hub_cache.h"
#include "io/gguf.h"
#include "models/gguf_weights.h"

namespace graft {

std::optional<at::ScalarType> CheckpointWeights::dtype() const {
  for (const auto& name : checkpoint_.names())
    if (const auto dtype = checkpoint_.info(name).scalar_type; at::isFloatingType(dtype)) return dtype;
  return std::nullopt;
}

std::unique_ptr<Weights> open_weights(const std::filesystem::path& given) {
  const auto path = io::local_path(given);
  if (const auto gguf = io::gguf_file_at(path))
    return std::make_unique<GgufWeights>(io::GgufFile::open(*gguf));
  return std::make_unique<CheckpointWeights>(Checkpoint::open(path));
}

}  // namespace graft
