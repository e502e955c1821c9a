// Guesses of what comes next, for a model to check several tokens in one call (assisted decoding).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace graft::generation {

struct Guesses {
  std::vector<int64_t> tokens = {};
  /// [tokens, vocab], on the host: what each was drawn by, where they were drawn (speculative sampling).
  at::Tensor probabilities = {};
};

class Candidates {
 public:
  virtual ~Candidates() = default;
  /// At most `most` tokens that may follow `ids`, the sequence so far; none where there is no guess.
  virtual Guesses after(const std::vector<int64_t>& ids, int64_t most) = 0;
  /// As many as after() gives in any call.
  virtual int64_t most() const = 0;
};

/// What followed the last few tokens where they stood before (transformers' prompt lookup): the longest run
/// of at most `ngram` tokens that the sequence has already, and of its places the first.
class PromptLookup : public Candidates {
 public:
  PromptLookup(int64_t tokens, int64_t ngram) : tokens_(tokens), ngram_(ngram) {}
  Guesses after(const std::vector<int64_t>& ids, int64_t most) override;
  int64_t most() const override { return tokens_; }

 private:
  int64_t tokens_, ngram_;
};

}  // namespace graft::generation
