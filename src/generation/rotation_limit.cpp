#include "generation/rotation_limit.h"

namespace graft::generation {

std::optional<int64_t> rotation_limit(const PreTrainedModel& model) {
  const auto& config = model.config();
  const auto rope = config.object(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  const auto type = rope.string("rope_type", rope.string("type", "default"));
  const bool is_phi3 = config.string("model_type", "") == "phi3";
  const bool long_rope = type == "longrope" || type == "su" || (is_phi3 && type == "yarn");
  if (type != "dynamic" && !long_rope) return {};
  constexpr int64_t least = 2048;  // of the architectures' defaults
  const int64_t positions = config.size("max_position_embeddings", least);
  if (!long_rope) return positions;
  for (const auto& fields : {config, rope})
    if (fields.has("original_max_position_embeddings"))
      return fields.size("original_max_position_embeddings", least);
  return is_phi3 ? 4096 : positions;
}

}  // namespace graft::generation
