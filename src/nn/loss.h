// The losses transformers computes when labels are given.
#pragma once
#include <ATen/core/Tensor.h>

#include "graft/config.h"

namespace graft::nn {

/// Labels of this value take no part in a loss.
inline constexpr int64_t kIgnoredLabel = -100;

/// Next-token cross entropy in float32: position i is judged by label i + 1. Mean over the labels that are
/// not -100.
at::Tensor causal_lm_loss(const at::Tensor& logits, const at::Tensor& labels);
/// Cross entropy at each position itself, in the logits' own dtype as transformers has it: masked language
/// models, classes of tokens, decoders whose input is shifted.
at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels);
/// The same in float32.
at::Tensor token_classification_loss(const at::Tensor& logits, const at::Tensor& labels);
/// By `problem_type`, or by the labels when the config has none: regression, single-label or multi-label
/// classification.
at::Tensor classification_loss(const Config& config, const at::Tensor& logits, const at::Tensor& labels);

}  // namespace graft::nn
