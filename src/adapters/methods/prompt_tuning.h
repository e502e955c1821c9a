// Prompt tuning (Lester et al. 2021): embeddings of virtual tokens, trained themselves.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method prompt_tuning_method();

/// ConfigError for fields that a start from text needs, or a number of tokens that is none.
void check_prompt_tuning(const AdapterConfig& config);

/// The embeddings that such a prompt of that shape starts from; undefined where there is a file.
at::Tensor fresh_prompt(const PromptBuild& build, at::IntArrayRef shape);

}  // namespace graft::adapters
