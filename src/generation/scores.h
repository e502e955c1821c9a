// From a model's logits to the scores the next token is chosen by: transformers' logits processors, in its
// order. The rules are in score_rules.h (what may be said) and sampling_rules.h (what is drawn among).
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "graft/generate.h"

namespace graft::generation {

/// What rules look at beside the tokens so far.
struct ScoreContext {
  int64_t prompt_length = 0;  ///< of the columns, an encoder-decoder's start token
  int64_t max_length = 0;     ///< the columns there are at most
  /// What was given to read, [rows, tokens]: the prompt, or what an encoder reads. There may be more rows of
  /// scores, the same number for each row of these.
  at::Tensor source = {};
};

class Scores {
 public:
  /// Scores for what follows `ids` [rows, length so far], given as [rows, vocab]. What may not come has minus
  /// infinity.
  using Rule = std::function<at::Tensor(const at::Tensor& scores, const at::Tensor& ids)>;

  Scores(const GenerationConfig& config, const ScoreContext& context);

  /// `logits` [rows, vocab] of any float dtype, or their logarithms of probabilities; gives float32.
  at::Tensor operator()(const at::Tensor& logits, const at::Tensor& ids) const;
  /// Whether scores are the logits, with whatever tokens.
  bool none() const { return rules_.empty(); }

 private:
  std::vector<Rule> rules_;
};

}  // namespace graft::generation
