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
  /// Row i goes on as what row rows[i] was, of the same prompt: [batch].
  virtual void reorder(const at::Tensor& rows) = 0;
};

/// Steps whose cache can stay for the next prompt. For one row without padding.
class ResumableSteps : public Steps {
 public:
  at::Tensor start(const Prompt& prompt) override { return resume(prompt, 0); }
  /// As start(), where the cache holds the first `held` tokens of the prompt, and perhaps others after them:
  /// what is new is run.
  virtual at::Tensor resume(const Prompt& prompt, int64_t held) = 0;
  /// Puts a cache that it had before (none: an empty one) in the place of the present one, which it gives
  /// back.
  virtual std::shared_ptr<KVCache> exchange(std::shared_ptr<KVCache> cache) = 0;
};

/// Tells on_tokens; whether it lets generation go on.
bool told(const GenerateCall& call, const at::Tensor& tokens);

/// Greedy decoding, sampling or beam search. `with_logprobs`: else those may be left undefined.
GenerateOutput run(Steps& steps, const Prompt& prompt, const GenerationConfig& config,
                   const GenerateCall& call, bool with_logprobs);
/// The same without beams. `looks_late`: whether all rows have ended is asked a step late, so that a GPU has
/// the next step to do meanwhile.
GenerateOutput run(Steps& steps, const Prompt& prompt, const GenerationConfig& config,
                   const GenerateCall& call, bool with_logprobs, bool looks_late);

}  // namespace graft::generation
