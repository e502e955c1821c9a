#include "generation/scores.h"

#include <ATen/ATen.h>

#include <cmath>

namespace graft::generation {
namespace {

constexpr double never = -INFINITY;

at::Tensor penalise_repetition(const at::Tensor& scores, const at::Tensor& ids, double penalty) {
  const auto there = scores.gather(1, ids);
  return scores.scatter(1, ids, at::where(there < 0, there * penalty, there / penalty));
}

/// A token that would complete an n-gram the row has already.
at::Tensor ban_ngrams(const at::Tensor& scores, const at::Tensor& ids, int64_t size) {
  const int64_t length = ids.size(1), vocab = scores.size(1);
  if (length < size) return scores;
  const auto prefix = ids.slice(1, length + 1 - size).unsqueeze(1);
  const auto windows = ids.unfold(1, size, 1);
  const auto same = windows.slice(2, 0, size - 1).eq(prefix).all(-1);
  // Windows that do not match go to a column of their own, past the vocabulary.
  const auto banned = at::where(same, windows.select(2, size - 1), vocab);
  const auto mask = at::zeros({scores.size(0), vocab + 1}, scores.options().dtype(at::kBool));
  return scores.masked_fill(mask.scatter(1, banned, true).slice(1, 0, vocab), never);
}

at::Tensor without(const at::Tensor& scores, const std::vector<int64_t>& tokens) {
  const auto all = at::arange(scores.size(1), scores.options().dtype(at::kLong));
  return scores.masked_fill(at::isin(all, at::tensor(tokens, all.options())), never);
}

at::Tensor keep_top_k(const at::Tensor& scores, int64_t k) {
  const auto best = std::get<0>(scores.topk(std::min(k, scores.size(1))));
  return scores.masked_fill(scores < best.slice(1, best.size(1) - 1), never);
}

/// The likeliest tokens that together have the probability p: from the other end, those are removed that
/// together have at most 1 - p.
at::Tensor keep_top_p(const at::Tensor& scores, double p) {
  const auto [sorted, order] = scores.sort(/*dim=*/-1, /*descending=*/false);
  auto removed = sorted.softmax(-1).cumsum(-1) <= 1 - p;
  removed.slice(1, removed.size(1) - 1).fill_(false);
  return scores.masked_fill(removed.scatter(1, order, removed), never);
}

at::Tensor keep_min_p(const at::Tensor& scores, double p) {
  const auto probabilities = scores.softmax(-1);
  const auto best = probabilities.amax(-1, /*keepdim=*/true);
  return scores.masked_fill(probabilities < p * best, never);
}

}  // namespace

at::Tensor scores_of(const at::Tensor& logits, const at::Tensor& ids, int64_t prompt_length,
                     const GenerationConfig& config) {
  auto scores = logits;
  const int64_t length = ids.size(1);
  if (config.repetition_penalty != 1) scores = penalise_repetition(scores, ids, config.repetition_penalty);
  if (config.no_repeat_ngram_size > 0) scores = ban_ngrams(scores, ids, config.no_repeat_ngram_size);
  const int64_t least = config.min_new_tokens ? prompt_length + *config.min_new_tokens : config.min_length;
  if (length < least && !config.eos_token_id.empty()) scores = without(scores, config.eos_token_id);
  if (!config.suppress_tokens.empty()) scores = without(scores, config.suppress_tokens);
  if (!config.begin_suppress_tokens.empty() && length == prompt_length)
    scores = without(scores, config.begin_suppress_tokens);
  if (!config.do_sample) return scores;
  if (config.temperature != 1) scores = scores / config.temperature;
  if (config.top_k > 0) scores = keep_top_k(scores, config.top_k);
  if (config.top_p < 1) scores = keep_top_p(scores, config.top_p);
  if (config.min_p) scores = keep_min_p(scores, *config.min_p);
  return scores;
}

}  // namespace graft::generation
