// Rules for what may be said: each takes scores and the tokens so far, and gives scores (Scores::Rule).
#pragma once
#include "generation/scores.h"

namespace graft::generation {

/// Scores of tokens that stand in `source`, or of those so far where it is undefined: divided by `penalty`
/// where they are positive, multiplied where they are negative.
Scores::Rule penalise(double penalty, const at::Tensor& source);
/// No token that would complete a run of `size` tokens which is in `source`, or in the row itself where that
/// is undefined.
Scores::Rule ban_ngrams(int64_t size, const at::Tensor& source);
/// UsageError, when it is run, for tokens outside the vocabulary: `setting` said so.
Scores::Rule bias_sequences(std::string setting, std::vector<TokenBias> biases);
/// Words that are one token which ends a row stay allowed, as in transformers.
Scores::Rule ban_words(const std::vector<std::vector<int64_t>>& words, const std::vector<int64_t>& eos);
Scores::Rule without(std::vector<int64_t> tokens);
/// These tokens have the score 0, others may not come.
Scores::Rule only(std::vector<int64_t> tokens);
/// No NaN and no infinity.
Scores::Rule finite();
/// Past `start` columns the scores of `tokens` grow by their size times factor^(columns past it) - 1.
Scores::Rule favour_the_end(std::vector<int64_t> tokens, int64_t start, double factor);

/// `rule` where compare(columns so far, length).
template <class Compare>
Scores::Rule where_length(Compare compare, int64_t length, Scores::Rule rule) {
  return [=, rule = std::move(rule)](const at::Tensor& scores, const at::Tensor& ids) {
    return compare(ids.size(1), length) ? rule(scores, ids) : scores;
  };
}

}  // namespace graft::generation
