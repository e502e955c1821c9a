#include "generation/assisted.h"

#include <ATen/ATen.h>

#include "generation/choice.h"
#include "generation/draft.h"
#include "generation/sequences.h"
#include "generation/stops.h"
#include "graft/error.h"

namespace graft::generation {
namespace {

/// The one row, as it grows.
class Row {
 public:
  Row(const Prompt& prompt, const GenerationConfig& config, const GenerateCall& call, bool with_logprobs)
      : length_(prompt.length()),
        total_(prompt.max_length()),
        last_position_(prompt.positions.select(1, length_ - 1).item<int64_t>()),
        with_logprobs_(with_logprobs),
        call_(call),
        choose_(config, prompt.score_context()),
        stops_(config, call.tokenizer),
        sequence_(prompt.ids) {
    const auto host = prompt.ids.cpu();
    const auto* values = host.const_data_ptr<int64_t>();
    ids_.assign(values, values + length_);
  }

  /// The token that follows; false where the row ends with it.
  bool add(const at::Tensor& logits) {
    const auto scores = choose_.scores()(logits, sequence());
    return put(choose_(scores), scores);
  }

  /// Speculative sampling (Leviathan et al. 2023): a guess that was drawn by q is kept with probability
  /// min(1, p / q), else a token is drawn by what p has more than q. Either way it is a draw by p. Whether
  /// the guess was kept, and whether the row continues.
  std::pair<bool, bool> judge(const at::Tensor& logits, int64_t guess, const at::Tensor& drawn_by) {
    const auto scores = choose_.scores()(logits, sequence());
    const auto p = scores.softmax(-1).cpu(), q = drawn_by.unsqueeze(0);
    const auto at_guess = [guess](const at::Tensor& x) { return x.select(1, guess).item<double>(); };
    if (choose_.number() * at_guess(q) <= at_guess(p))
      return {true, put(at::full({1}, guess, at::kLong), scores)};
    const auto rest = (p - q).clamp_min(0);
    // Nothing is left where the two differ by a rounding only.
    return {false, put(choose_.draw(rest.sum().item<double>() > 0 ? rest : p).squeeze(1), scores)};
  }

  /// The last token and the guesses after it, and where they stand: each [1, guesses + 1].
  std::pair<at::Tensor, at::Tensor> with(const std::vector<int64_t>& guesses) const {
    const auto count = static_cast<int64_t>(guesses.size());
    const auto so_far = sequence();
    const auto positions = at::arange(count + 1, so_far.options()) + (last_position_ + made() - length_);
    return {at::cat({so_far.slice(1, made() - 1), at::tensor(guesses, so_far.options()).unsqueeze(0)}, 1),
            positions.unsqueeze(0)};
  }

  const std::vector<int64_t>& ids() const { return ids_; }
  at::Tensor sequence() const { return sequence_.ids(); }
  GenerateOutput result() const {
    return {.sequences = sequence().contiguous(),
            .logprobs = with_logprobs_ ? at::cat(logprobs_, 1) : at::Tensor()};
  }
  /// Guesses that are of use: the model adds a token of its own after them.
  int64_t room() const { return total_ - made() - 1; }

 private:
  int64_t made() const { return static_cast<int64_t>(ids_.size()); }

  /// A token and the scores that it was chosen by; false where the row ends with it.
  bool put(const at::Tensor& token, const at::Tensor& scores) {
    if (with_logprobs_)
      logprobs_.push_back(scores.log_softmax(-1).gather(1, token.to(scores.device()).unsqueeze(1)));
    sequence_.add(token);
    ids_.push_back(token.item<int64_t>());
    const bool go_on = (!call_.on_tokens || call_.on_tokens({ids_.back()})) && !stops_.late();
    return go_on && made() < total_ && !stops_.ended_by(ids_);
  }

  int64_t length_, total_, last_position_;
  bool with_logprobs_;
  const GenerateCall& call_;
  Choice choose_;
  Stops stops_;
  Sequences sequence_;
  std::vector<int64_t> ids_;
  std::vector<at::Tensor> logprobs_;
};

/// What became of guesses.
struct Judged {
  size_t kept = 0;
  bool ended = false;
};

/// Drawn guesses: kept by chance.
Judged judge_drawn(Row& row, const Guesses& guesses, const at::Tensor& logits) {
  Judged found;
  while (found.kept < guesses.tokens.size()) {
    const auto place = static_cast<int64_t>(found.kept);
    const auto [kept, goes_on] =
        row.judge(logits.select(1, place), guesses.tokens[found.kept], guesses.probabilities[place]);
    found.kept += kept ? 1 : 0;
    found.ended = !goes_on;
    if (!kept || found.ended) return found;
  }
  found.ended = !row.add(logits.select(1, static_cast<int64_t>(found.kept)));
  return found;
}

/// Others: kept where the model chose the same token.
Judged judge_chosen(Row& row, const Guesses& guesses, const at::Tensor& logits) {
  const auto& tokens = guesses.tokens;
  Judged found{.ended = !row.add(logits.select(1, 0))};
  while (!found.ended && found.kept < tokens.size() && row.ids().back() == tokens[found.kept]) {
    ++found.kept;
    found.ended = !row.add(logits.select(1, static_cast<int64_t>(found.kept)));
  }
  // The last token may be a guess, too, if the row ends with it.
  if (found.ended && found.kept < tokens.size() && row.ids().back() == tokens[found.kept]) ++found.kept;
  return found;
}

}  // namespace

bool is_assisted(const Prompt& prompt, const GenerationConfig& config, const GenerateCall& call,
                 const PreTrainedModel& model) {
  const bool looks_up = config.prompt_lookup_num_tokens.has_value();
  if (config.speculative_sampling && !(config.do_sample && call.assistant_model))
    throw UsageError(
        "[generate] speculative_sampling draws from a smaller model's probabilities: it needs do_sample and "
        "an "
        "assistant_model");
  if (!looks_up && !call.assistant_model) return false;
  if (looks_up && call.assistant_model)
    throw UsageError(
        "[generate] there are prompt_lookup_num_tokens and an assistant_model: guesses come from one of "
        "them");
  if (config.num_beams > 1)
    throw UsageError("[generate] guesses are for greedy decoding and sampling, and num_beams is " +
                     std::to_string(config.num_beams) + ": do without one of them");
  if (prompt.batch() > 1)
    throw UsageError("[generate] " +
                     std::string(looks_up ? "prompt_lookup_num_tokens" : "an assistant_model") +
                     " is for one prompt at a time, and there are " + std::to_string(prompt.batch()));
  if (prompt.mixes_tokens)
    throw UsageError(
        "[generate] an adapter at work (Lily) looks at all tokens of a call, which guesses would change: "
        "generate without them");
  if (call.assistant_model) check_draft(*call.assistant_model, model);
  const auto limit = model.rotation_limit();
  if (const int64_t total = prompt.cached() + 1; limit && total > *limit)
    throw UsageError("[generate] " + std::to_string(total) + " tokens are more than the " +
                     std::to_string(*limit) +
                     " this model was trained for; beyond them its rotary positions change with the longest "
                     "one in a call, which guesses would change: generate without them");
  return true;
}

GenerateOutput run_assisted(Steps& steps, Candidates& candidates, const Prompt& prompt,
                            const GenerationConfig& config, const GenerateCall& call, bool with_logprobs) {
  const at::NoGradGuard no_grad;
  Row row(prompt, config, call, with_logprobs);
  if (!row.add(steps.start(prompt))) return row.result();
  for (;;) {
    const auto guesses = candidates.after(row.ids(), row.room());
    const auto [tokens, positions] = row.with(guesses.tokens);
    if (guesses.tokens.empty()) {
      if (!row.add(steps.next(tokens, positions))) break;
      continue;
    }
    const auto logits = steps.several(tokens, positions);
    const auto found = guesses.probabilities.defined() ? judge_drawn(row, guesses, logits)
                                                       : judge_chosen(row, guesses, logits);
    if (call.on_candidates)
      call.on_candidates(static_cast<int64_t>(guesses.tokens.size()), static_cast<int64_t>(found.kept));
    if (found.ended) break;
    steps.forget(static_cast<int64_t>(guesses.tokens.size() - found.kept));
  }
  return row.result();
}

}  // namespace graft::generation
