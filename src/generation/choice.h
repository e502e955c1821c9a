// How the next token is chosen.
#pragma once
#include <ATen/core/Generator.h>

#include "graft/generate.h"

namespace graft::generation {

/// The next token of each row, [batch]: the likeliest, or one drawn by the probabilities. Draws are made on
/// the host, so that a seed means the same tokens on every device.
class Choice {
 public:
  explicit Choice(GenerationConfig config);

  /// `logits` [batch, vocab] after `ids` [batch, length so far], the first `prompt_length` of them the
  /// prompt.
  at::Tensor operator()(const at::Tensor& logits, const at::Tensor& ids, int64_t prompt_length);

  /// What it draws by, [batch, vocab] on the host.
  at::Tensor probabilities(const at::Tensor& logits, const at::Tensor& ids, int64_t prompt_length) const;
  /// A token of each row of such, [batch]; they need not sum to one.
  at::Tensor draw(const at::Tensor& probabilities) const;
  /// A number from 0 to 1.
  double number() const;

 private:
  GenerationConfig config_;
  at::Generator generator_;
};

}  // namespace graft::generation
