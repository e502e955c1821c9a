// The fields that all prompt methods have, and what PEFT reads from the model for them.
#pragma once
#include "adapters/schema.h"
#include "graft/adapter_config.h"
#include "graft/model.h"

namespace graft::adapters {

/// Where config.json may have a size, in PEFT's order: "num_layers", "token_dim", "num_attention_heads".
/// ConfigError where it has none.
int64_t model_size(const PreTrainedModel& model, std::string_view field);

/// `own`: the method's fields beside those.
std::vector<Field> prompt_fields(std::vector<Field> own);

/// ConfigError for a number of virtual tokens that is none.
void check_prompt(const AdapterConfig& config);

/// The rows of a soft prompt: PEFT learns a second prompt beside an encoder's, for its decoder, and leaves it
/// unused.
int64_t total_virtual_tokens(const AdapterConfig& config);

/// Fills in the fields that say how large the model is. ConfigError: the task is none that prompts can serve
/// in this model, or sizes are set that the model does not have.
AdapterConfig with_model_sizes(const AdapterConfig& config, const PreTrainedModel& model);

}  // namespace graft::adapters
