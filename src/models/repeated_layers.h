// A model whose blocks are those of another, some of them several times: PEFT's "layer_replication".
#pragma once
#include "graft/model.h"

namespace graft {

/// Ranges [from, to) of the model's blocks, one after the other: {{0, 4}, {2, 5}} of five blocks is
/// 0 1 2 3 2 3 4. Every weight is the given model's own tensor, which repeated blocks share. ConfigError: a
/// model whose blocks cannot be repeated (they can in Llama's relatives and BERT), a range that it does not
/// have.
std::shared_ptr<PreTrainedModel> with_repeated_layers(const PreTrainedModel& model,
                                                      const std::vector<std::pair<int64_t, int64_t>>& ranges);

}  // namespace graft
