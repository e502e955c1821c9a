#include "generation/score_rules.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>

#include "graft/error.h"

namespace graft::generation {
namespace {

constexpr double never = -INFINITY;

/// A row of `source` for each row of scores.
at::Tensor for_rows(const at::Tensor& source, int64_t rows) {
  return source.size(0) == rows ? source : source.repeat_interleave(rows / source.size(0), 0);
}

at::Tensor on(const std::vector<int64_t>& tokens, const at::Tensor& like) {
  return at::tensor(tokens, like.options().dtype(at::kLong));
}

void check_vocabulary(const std::string& setting, int64_t token, int64_t vocabulary) {
  if (token < 0 || token >= vocabulary)
    throw UsageError("[generate] " + setting + " has the token " + std::to_string(token) +
                     ", and the model's vocabulary has " + std::to_string(vocabulary) + " tokens");
}

}  // namespace

Scores::Rule penalise(double penalty, const at::Tensor& source) {
  return [=](const at::Tensor& scores, const at::Tensor& ids) {
    const auto where = source.defined() ? for_rows(source, scores.size(0)) : ids;
    const auto there = scores.gather(1, where);
    return scores.scatter(1, where, at::where(there < 0, there * penalty, there / penalty));
  };
}

Scores::Rule ban_ngrams(int64_t size, const at::Tensor& source) {
  return [=](const at::Tensor& scores, const at::Tensor& ids) {
    const auto given = source.defined() ? for_rows(source, scores.size(0)) : ids;
    const int64_t length = ids.size(1), vocab = scores.size(1);
    if (length + 1 < size || given.size(1) < size) return scores;
    const auto prefix = ids.slice(1, length + 1 - size).unsqueeze(1);
    const auto windows = given.unfold(1, size, 1);
    const auto same = windows.slice(2, 0, size - 1).eq(prefix).all(-1);
    // Windows that do not match go to a column of their own, past the vocabulary.
    const auto banned = at::where(same, windows.select(2, size - 1), vocab);
    const auto mask = at::zeros({scores.size(0), vocab + 1}, scores.options().dtype(at::kBool));
    return scores.masked_fill(mask.scatter(1, banned, true).slice(1, 0, vocab), never);
  };
}

Scores::Rule bias_sequences(std::string setting, std::vector<TokenBias> biases) {
  std::map<std::vector<int64_t>, double> once;  // of several for the same tokens the last one counts
  for (auto& [tokens, bias] : biases) once[std::move(tokens)] = bias;
  return [setting = std::move(setting), once = std::move(once)](const at::Tensor& scores,
                                                                const at::Tensor& ids) {
    auto bias = at::zeros_like(scores);
    for (const auto& [tokens, value] : once) {
      for (const auto token : tokens) check_vocabulary(setting, token, scores.size(1));
      auto column = bias.select(1, tokens.back());
      const auto before = static_cast<int64_t>(tokens.size()) - 1;
      if (before == 0) {
        column.add_(value);
      } else if (before <= ids.size(1)) {
        const auto last = ids.slice(1, ids.size(1) - before);
        const auto prefix = on({tokens.begin(), tokens.end() - 1}, ids);
        column.add_(at::where(last.eq(prefix).all(1), at::full({}, value, bias.options()), 0.));
      }
    }
    return scores + bias;
  };
}

Scores::Rule ban_words(const std::vector<std::vector<int64_t>>& words, const std::vector<int64_t>& eos) {
  std::vector<TokenBias> biases;
  for (const auto& word : words) {
    const bool ends = word.size() == 1 && std::find(eos.begin(), eos.end(), word[0]) != eos.end();
    if (!ends) biases.push_back({word, never});
  }
  return bias_sequences("bad_words_ids", std::move(biases));
}

Scores::Rule without(std::vector<int64_t> tokens) {
  return [tokens = std::move(tokens)](const at::Tensor& scores, const at::Tensor&) {
    const auto all = at::arange(scores.size(1), scores.options().dtype(at::kLong));
    return scores.masked_fill(at::isin(all, on(tokens, all)), never);
  };
}

Scores::Rule only(std::vector<int64_t> tokens) {
  return [tokens = std::move(tokens)](const at::Tensor& scores, const at::Tensor&) {
    for (const auto token : tokens) check_vocabulary("a forced token id", token, scores.size(1));
    auto forced = at::full_like(scores, never);
    return forced.index_fill_(1, on(tokens, scores), 0);
  };
}

Scores::Rule finite() {
  return [](const at::Tensor& scores, const at::Tensor&) { return at::nan_to_num(scores); };
}

Scores::Rule favour_the_end(std::vector<int64_t> tokens, int64_t start, double factor) {
  return [=, tokens = std::move(tokens)](const at::Tensor& scores, const at::Tensor& ids) {
    const int64_t past = ids.size(1) - start;
    if (past <= 0) return scores;
    const auto where = on(tokens, scores);
    const auto there = scores.index_select(1, where);
    const auto more = there.abs() * (std::pow(factor, past) - 1);
    return scores.index_add(1, where, more.masked_fill(there.isfinite().logical_not(), 0));
  };
}

}  // namespace graft::generation
