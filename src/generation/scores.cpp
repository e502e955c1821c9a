#include "generation/scores.h"

#include <ATen/ATen.h>

#include "generation/sampling_rules.h"
#include "generation/score_rules.h"

namespace graft::generation {
namespace {

/// How many new tokens come at least, as a length.
int64_t least_length(const GenerationConfig& config, const ScoreContext& context) {
  return config.min_new_tokens ? context.prompt_length + *config.min_new_tokens : config.min_length;
}

void add_rules(std::vector<Scores::Rule>& rules, const GenerationConfig& config,
               const ScoreContext& context) {
  const auto& eos = config.eos_token_id;
  const auto& source = context.source;
  if (!config.sequence_bias.empty()) rules.push_back(bias_sequences("sequence_bias", config.sequence_bias));
  if (config.encoder_repetition_penalty != 1)
    // What the prompt says is favoured where a repetition would be penalised.
    rules.push_back(penalise(1 / config.encoder_repetition_penalty, source));
  if (config.repetition_penalty != 1) rules.push_back(penalise(config.repetition_penalty, {}));
  if (config.no_repeat_ngram_size > 0) rules.push_back(ban_ngrams(config.no_repeat_ngram_size, {}));
  if (config.encoder_no_repeat_ngram_size > 0)
    rules.push_back(ban_ngrams(config.encoder_no_repeat_ngram_size, source));
  if (!config.bad_words_ids.empty()) rules.push_back(ban_words(config.bad_words_ids, eos));
  if (const auto least = least_length(config, context); least > 0 && !eos.empty())
    rules.push_back(where_length(std::less<>(), least, without(eos)));
  if (config.forced_bos_token_id)
    rules.push_back(where_length(std::equal_to<>(), 1, only({*config.forced_bos_token_id})));
  if (!config.forced_eos_token_id.empty())
    rules.push_back(
        where_length(std::equal_to<>(), context.max_length - 1, only(config.forced_eos_token_id)));
  if (config.remove_invalid_values) rules.push_back(finite());
  if (const auto& decay = config.exponential_decay_length_penalty)
    rules.push_back(favour_the_end(eos, context.prompt_length + decay->start, decay->factor));
  if (!config.suppress_tokens.empty()) rules.push_back(without(config.suppress_tokens));
  if (!config.begin_suppress_tokens.empty()) {
    // A forced first token is not what is meant: then it is the one after it.
    const bool forced = context.prompt_length <= 1 && config.forced_bos_token_id;
    rules.push_back(where_length(std::equal_to<>(), context.prompt_length + (forced ? 1 : 0),
                                 without(config.begin_suppress_tokens)));
  }
}

void add_sampling_rules(std::vector<Scores::Rule>& rules, const GenerationConfig& config) {
  // A beam needs a token beside those that end it.
  const auto ends = static_cast<int64_t>(config.eos_token_id.size());
  const int64_t keep = config.num_beams > 1 ? std::max<int64_t>(2, ends + 1) : 1;
  if (config.temperature != 1) rules.push_back(divide(config.temperature));
  if (config.top_h) rules.push_back(keep_top_h(*config.top_h));
  if (config.top_k > 0) rules.push_back(keep_top_k(std::max(config.top_k, keep)));
  if (config.top_p < 1) rules.push_back(keep_top_p(config.top_p, keep));
  if (config.min_p) rules.push_back(keep_min_p(*config.min_p, keep));
  if (config.typical_p < 1) rules.push_back(keep_typical(config.typical_p, keep));
  const auto cuts = [](double share) { return share > 0 && share < 1; };
  if (cuts(config.epsilon_cutoff)) rules.push_back(cut_epsilon(config.epsilon_cutoff, keep));
  if (cuts(config.eta_cutoff)) rules.push_back(cut_eta(config.eta_cutoff, keep));
}

}  // namespace

Scores::Scores(const GenerationConfig& config, const ScoreContext& context) {
  add_rules(rules_, config, context);
  if (config.do_sample) add_sampling_rules(rules_, config);
  if (config.renormalize_logits)
    rules_.push_back([](const at::Tensor& scores, const at::Tensor&) { return scores.log_softmax(-1); });
}

at::Tensor Scores::operator()(const at::Tensor& logits, const at::Tensor& ids) const {
  auto scores = logits.to(at::kFloat);
  for (const auto& rule : rules_) scores = rule(scores, ids);
  return scores;
}

}  // namespace graft::generation
