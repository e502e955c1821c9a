// How the next token is chosen.
#pragma once
#include <ATen/core/Generator.h>

#include "generation/scores.h"

namespace graft::generation {

/// The next token of each row: the likeliest, or one drawn by the probabilities. Draws are made on the host,
/// so that a seed means the same tokens on every device.
class Choice {
 public:
  Choice(const GenerationConfig& config, const ScoreContext& context);

  /// What it chooses by, [rows, vocab] float32, of `logits` [rows, vocab] after `ids` [rows, length so far].
  const Scores& scores() const { return scores_; }
  /// [rows]
  at::Tensor operator()(const at::Tensor& scores) const;

  /// Whether the likeliest token by the logits is all there is to choose.
  bool takes_the_likeliest() const { return !generator_.defined() && scores_.none(); }
  /// `count` different ones of each row, [rows, count], drawn by probabilities that need not sum to one.
  at::Tensor draw(const at::Tensor& probabilities, int64_t count = 1) const;
  /// A number from 0 to 1.
  double number() const;

 private:
  Scores scores_;
  at::Generator generator_;  ///< undefined: nothing is drawn
};

}  // namespace graft::generation
