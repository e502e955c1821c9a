// The loop of generation, over anything that can say what comes next.
#pragma once
#include "generation/prompt.h"

namespace graft::generation {

/// Runs tokens through a model, one call after the other, keeping their keys and values.
class Steps {
 public:
  virtual ~Steps() = default;
  /// The logits after the prompt, [batch, vocab].
  virtual at::Tensor start(const Prompt& prompt) = 0;
  /// The logits after one token more in each row: tokens and their positions, [batch, 1].
  virtual at::Tensor next(const at::Tensor& tokens, const at::Tensor& positions) = 0;
  /// The logits after each of several tokens more, [batch, tokens, vocab].
  virtual at::Tensor several(const at::Tensor& tokens, const at::Tensor& positions) = 0;
  /// The last so many tokens are taken back.
  virtual void forget(int64_t tokens) = 0;
};

at::Tensor run(Steps& steps, const Prompt& prompt, const GenerationConfig& config, const GenerateCall& call);

}  // namespace graft::generation
