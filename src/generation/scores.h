// From a model's logits to the scores the next token is chosen by: transformers' logits processors, in its
// order.
#pragma once
#include <ATen/core/Tensor.h>

#include "graft/generate.h"

namespace graft::generation {

/// `logits` [batch, vocab] float32 for what follows `ids` [batch, length so far], of which the first
/// `prompt_length` are the prompt. A token that may not come has minus infinity.
at::Tensor scores_of(const at::Tensor& logits, const at::Tensor& ids, int64_t prompt_length,
                     const GenerationConfig& config);

}  // namespace graft::generation
