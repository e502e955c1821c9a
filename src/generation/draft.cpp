#include "generation/draft.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "graft/error.h"

namespace graft::generation {
namespace {

/// Greedy, unless it is to draw; then by draws of its own.
GenerationConfig of_draft(GenerationConfig config) {
  constexpr uint64_t other = 0x9e3779b97f4a7c15;
  config.do_sample = config.do_sample && config.speculative_sampling;
  if (config.seed) config.seed = *config.seed ^ other;
  return config;
}

}  // namespace

Draft::Draft(std::shared_ptr<Steps> steps, const Prompt& prompt, const GenerationConfig& config,
             std::optional<int64_t> position_limit)
    : steps_(std::move(steps)),
      prompt_(prompt),
      config_(of_draft(config)),
      choose_(config_, prompt.score_context()),
      limit_(position_limit),
      last_position_(prompt.positions.select(1, prompt.length() - 1).item<int64_t>()) {}

bool Draft::has_room() const { return !limit_ || static_cast<int64_t>(fed_.size()) < *limit_; }

at::Tensor Draft::feed(int64_t token) {
  const auto position = last_position_ + static_cast<int64_t>(fed_.size()) - prompt_.length() + 1;
  fed_.push_back(token);
  return steps_->next(at::full({1, 1}, token, prompt_.ids.options()),
                      at::full({1, 1}, position, prompt_.ids.options()));
}

at::Tensor Draft::catch_up(const std::vector<int64_t>& ids) {
  if (limit_ && static_cast<int64_t>(ids.size()) > *limit_) return {};
  at::Tensor logits;
  if (fed_.empty()) {
    logits = steps_->start(prompt_);
    fed_.assign(ids.begin(), ids.begin() + prompt_.length());
  }
  // The last token is fed in any case: it is its logits that are asked for.
  const auto same = std::mismatch(fed_.begin(), fed_.end(), ids.begin(), ids.end() - 1).first - fed_.begin();
  steps_->forget(static_cast<int64_t>(fed_.size()) - same);
  fed_.resize(static_cast<size_t>(same));
  while (fed_.size() < ids.size()) logits = feed(ids[fed_.size()]);
  return logits;
}

Guesses Draft::after(const std::vector<int64_t>& ids, int64_t most) {
  most = std::min(most, config_.num_assistant_tokens);
  Guesses guesses;
  if (most < 1) return guesses;
  auto logits = catch_up(ids);
  if (!logits.defined()) return guesses;
  guesses.tokens.reserve(static_cast<size_t>(most));
  std::vector<at::Tensor> drawn_by;
  auto sequence = ids;
  for (;;) {
    const auto so_far = at::tensor(sequence, prompt_.ids.options()).unsqueeze(0);
    const auto probabilities = choose_.scores()(logits, so_far).softmax(-1).cpu();
    const auto token =
        (config_.do_sample ? choose_.draw(probabilities) : probabilities.argmax(-1)).item<int64_t>();
    if (config_.do_sample) drawn_by.push_back(probabilities);
    guesses.tokens.push_back(token);
    sequence.push_back(token);
    const auto& eos = config_.eos_token_id;
    const bool unsure =
        probabilities.select(1, token).item<double>() < config_.assistant_confidence_threshold;
    if (unsure || static_cast<int64_t>(guesses.tokens.size()) == most || !has_room() ||
        std::find(eos.begin(), eos.end(), token) != eos.end())
      break;
    logits = feed(token);
  }
  if (config_.do_sample) guesses.probabilities = at::cat(drawn_by);
  return guesses;
}

std::unique_ptr<Candidates> make_candidates(
    const Prompt& prompt, const GenerationConfig& config, const GenerateCall& call,
    const std::function<std::shared_ptr<Steps>(const std::shared_ptr<PreTrainedModel>&)>& steps_of) {
  const auto& draft = call.assistant_model;
  if (!draft)
    return std::make_unique<PromptLookup>(*config.prompt_lookup_num_tokens, config.max_matching_ngram_size);
  auto own = prompt;
  own.rows = {};
  own.virtual_tokens = 0;  // the adapters are the model's, not the draft's
  return std::make_unique<Draft>(steps_of(draft), own, config, draft->position_limit());
}

void check_draft(const PreTrainedModel& draft, const PreTrainedModel& model) {
  if (is_encoder_decoder(draft) != is_encoder_decoder(model))
    throw UsageError("[generate] " + draft.architecture() + " cannot go ahead of " + model.architecture() +
                     ": one of them reads its prompt with an encoder, the other has none");
  const auto own = draft.config().optional_integer("vocab_size"),
             theirs = model.config().optional_integer("vocab_size");
  if (own != theirs)
    throw UsageError("[generate] the draft model's vocabulary has " + std::to_string(own.value_or(0)) +
                     " tokens and the model's " + std::to_string(theirs.value_or(0)) +
                     ": they must be the same");
  if (draft.device() != model.device())
    throw UsageError("[generate] the draft model is on " + draft.device().str() + " and the model on " +
                     model.device().str() + ": put them on one device");
}

}  // namespace graft::generation
