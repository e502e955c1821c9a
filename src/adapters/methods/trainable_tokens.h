// Trainable tokens: chosen rows of an embedding, trained without the rest.
#pragma once
#include "adapters/targets.h"

namespace graft::adapters {

Method trainable_tokens_method();

/// What `trainable_token_indices` of other methods asks for: the embeddings, each with its tokens.
struct TokenTarget {
  Target target;
  std::vector<int64_t> indices;
};
std::vector<TokenTarget> token_targets(const AdapterConfig& config, const PreTrainedModel& model);
std::shared_ptr<Part> tokens_part(const PartBuild& build, const std::vector<int64_t>& indices);
/// The same tokens on a layer that shares the embedding's weight, as output layers do.
std::shared_ptr<Part> tied_tokens_part(const PartBuild& build, const Part& embedding);

/// Whether one of these other layers is an embedding with the very weight of this one.
bool shares_embedding(const nn::WeightedLayer& layer, const std::vector<Target>& among);

}  // namespace graft::adapters
