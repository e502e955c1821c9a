#include "generation/sampling_rules.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace graft::generation {
namespace {

constexpr double never = -INFINITY;

at::Tensor without(const at::Tensor& scores, const at::Tensor& removed) {
  return scores.masked_fill(removed, never);
}

/// The score of the k-th likeliest token, [rows, 1].
at::Tensor kth(const at::Tensor& scores, int64_t k) {
  k = std::min(k, scores.size(1));
  return std::get<0>(scores.topk(k)).slice(1, k - 1);
}

/// The logarithms of the probabilities.
at::Tensor logarithms(const at::Tensor& scores) { return scores - scores.logsumexp(-1, /*keepdim=*/true); }

/// [rows, 1]; a token without any chance adds nothing.
at::Tensor entropy(const at::Tensor& logs) {
  const auto finite = logs.clamp_min(std::numeric_limits<float>::lowest());
  return (logs.softmax(-1) * finite).sum(-1, /*keepdim=*/true).neg();
}

}  // namespace

Scores::Rule divide(double temperature) {
  return [=](const at::Tensor& scores, const at::Tensor&) { return scores / temperature; };
}

Scores::Rule keep_top_h(double share) {
  constexpr int64_t most = 100;
  return [=](const at::Tensor& scores, const at::Tensor&) {
    const auto [best, where] = scores.topk(std::min(most, scores.size(1)));
    const auto logs = logarithms(best), probabilities = logs.softmax(-1);
    // NaN where there is no chance, which is at most nothing: such tokens, and all after them, are left out.
    const auto shares = (probabilities * probabilities.log()).neg().cumsum(-1);
    auto kept = shares <= entropy(logs) * share;
    kept.slice(1, 0, 1).fill_(true);
    return without(scores, at::ones_like(scores, at::kBool).scatter(1, where, kept.logical_not()));
  };
}

Scores::Rule keep_top_k(int64_t k) {
  return
      [=](const at::Tensor& scores, const at::Tensor&) { return without(scores, scores < kth(scores, k)); };
}

/// From the other end: those are removed that together have at most 1 - p.
Scores::Rule keep_top_p(double p, int64_t keep) {
  return [=](const at::Tensor& scores, const at::Tensor&) {
    const auto [sorted, order] = scores.sort(/*dim=*/-1, /*descending=*/false);
    auto removed = sorted.softmax(-1).cumsum(-1) <= 1 - p;
    removed.slice(1, std::max<int64_t>(0, removed.size(1) - keep)).fill_(false);
    return without(scores, removed.scatter(1, order, removed));
  };
}

Scores::Rule keep_min_p(double p, int64_t keep) {
  return [=](const at::Tensor& scores, const at::Tensor&) {
    const auto probabilities = scores.softmax(-1);
    auto removed = probabilities < p * probabilities.amax(-1, /*keepdim=*/true);
    const auto best = std::get<1>(probabilities.topk(std::min(keep, scores.size(1))));
    return without(scores, removed.scatter(1, best, false));
  };
}

Scores::Rule keep_typical(double p, int64_t keep) {
  return [=](const at::Tensor& scores, const at::Tensor&) {
    const auto logs = logarithms(scores);
    const auto [distance, order] = (logs.neg() - entropy(logs)).abs().sort(-1, /*descending=*/false);
    const auto together = scores.gather(-1, order).softmax(-1).cumsum(-1);
    const auto last = (together < p).sum(1, /*keepdim=*/true).clamp_max(scores.size(1) - 1);
    auto removed = distance > distance.gather(1, last);
    removed.slice(1, 0, keep).fill_(false);
    return without(scores, removed.scatter(1, order, removed));
  };
}

Scores::Rule cut_epsilon(double epsilon, int64_t keep) {
  return [=](const at::Tensor& scores, const at::Tensor&) {
    return without(scores, (scores.softmax(-1) < epsilon).logical_and(scores < kth(scores, keep)));
  };
}

Scores::Rule cut_eta(double epsilon, int64_t keep) {
  return [=](const at::Tensor& scores, const at::Tensor&) {
    const auto unsure = entropy(logarithms(scores)).neg().exp();
    const auto bound = (std::sqrt(static_cast<float>(epsilon)) * unsure).clamp_max(epsilon);
    return without(scores, (scores.softmax(-1) < bound).logical_and(scores < kth(scores, keep)));
  };
}

}  // namespace graft::generation
