#include "generation/beam_search.h"

#include <ATen/ATen.h>

#include <cmath>

#include "generation/choice.h"
#include "generation/stops.h"
#include "graft/error.h"

namespace graft::generation {
namespace {

/// Added to the score of what is out of the race: transformers' number. Sums with it are rounded, and ties
/// among them decide the order, so that it has to be the same.
constexpr double kOut = -1e9;

/// Some beginnings or ends for each prompt: all [prompts, some, ...], ordered by score.
struct Beams {
  at::Tensor ids;       ///< [prompts, some, length]
  at::Tensor beams;     ///< [prompts, some, new tokens]: where in the batch each token was chosen
  at::Tensor logprobs;  ///< [prompts, some, new tokens]
  at::Tensor scores;    ///< [prompts, some]

  /// Of each prompt those at `places` [prompts, chosen].
  Beams at_places(const at::Tensor& places) const {
    const auto rows = places.unsqueeze(-1);
    return {ids.take_along_dim(rows, 1), beams.take_along_dim(rows, 1), logprobs.take_along_dim(rows, 1),
            scores.gather(1, places)};
  }

  /// Both, the others after these; where they are shorter they are filled up.
  Beams with(const Beams& others, int64_t pad) const {
    const auto filled = [](const at::Tensor& x, const at::Tensor& like, double by) {
      return at::constant_pad_nd(x, {0, like.size(2) - x.size(2)}, by);
    };
    return {at::cat({filled(ids, others.ids, static_cast<double>(pad)), others.ids}, 1),
            at::cat({filled(beams, others.beams, -1), others.beams}, 1),
            at::cat({filled(logprobs, others.logprobs, 0), others.logprobs}, 1),
            at::cat({scores, others.scores}, 1)};
  }
};

at::Tensor rows_of(const at::Tensor& x) { return x.flatten(0, 1); }

class Search {
 public:
  Search(const Prompt& prompt, const GenerationConfig& config, const GenerateCall& call)
      : config_(config),
        call_(call),
        beams_(config.num_beams),
        prompts_(prompt.batch() / beams_),
        prompt_length_(prompt.length()),
        max_length_(prompt.max_length()),
        pad_(config.pad_token_id.value_or(0)),
        choose_(config, prompt.score_context()),
        stops_(config, call.tokenizer) {
    const auto numbers = prompt.ids.options().dtype(at::kFloat);
    running_ = {prompt.ids.view({prompts_, beams_, -1}),
                at::empty({prompts_, beams_, 0}, prompt.ids.options()),
                at::empty({prompts_, beams_, 0}, numbers), at::zeros({prompts_, beams_}, numbers)};
    finished_ = running_;
    // All beams are the prompt: only the first may be continued, or all would be the same.
    running_.scores.slice(1, 1).fill_(kOut);
    finished_.scores = at::full_like(running_.scores, kOut);
    is_finished_ = at::zeros({prompts_, beams_}, prompt.ids.options().dtype(at::kBool));
    may_improve_ = at::ones({prompts_, 1}, is_finished_.options());
  }

  /// Takes the logits after the running beams; false at the end.
  bool add(const at::Tensor& logits) {
    const auto candidates = continuations(logits);
    const bool go_on = told(call_, at::empty({0}, running_.ids.options())) && !stops_.late();
    auto ended = at::ones_like(candidates.scores, at::kBool);
    if (go_on && candidates.ids.size(2) < max_length_)
      ended =
          stops_.any() ? stops_.ended_by(rows_of(candidates.ids)).view(ended.sizes()) : at::zeros_like(ended);
    // What has just ended is not continued.
    const auto open = candidates.scores + ended.to(at::kFloat) * kOut;
    const auto best = std::get<1>(open.topk(beams_));
    running_ = candidates.at_places(best);
    running_.scores = open.gather(1, best);
    finish(candidates, ended);
    judge_improvement();
    const bool all_full = config_.early_stopping == EarlyStopping::yes && is_finished_.all().item<bool>();
    return may_improve_.any().item<bool>() && !all_full && !ended.all().item<bool>();
  }

  /// [batch]: the last token of each running beam, and which beam it continues. Contiguous: a compiled step
  /// is for one layout.
  at::Tensor last_tokens() const {
    return rows_of(running_.ids.select(2, running_.ids.size(2) - 1)).contiguous();
  }
  at::Tensor continued() const {
    return rows_of(running_.beams.select(2, running_.beams.size(2) - 1)).contiguous();
  }

  GenerateOutput result() const {
    const auto best = [&](const at::Tensor& x) {
      return rows_of(x.slice(1, 0, config_.num_return_sequences)).contiguous();
    };
    const auto beams = best(finished_.beams);
    const auto made = beams.ge(0).sum(1).max().item<int64_t>();
    return {.sequences = best(finished_.ids).slice(1, 0, prompt_length_ + made).contiguous(),
            .logprobs = best(finished_.logprobs).slice(1, 0, made).contiguous(),
            .sequences_scores = best(finished_.scores),
            .beam_indices = beams.slice(1, 0, made).contiguous()};
  }

 private:
  int64_t made() const { return running_.beams.size(2); }

  /// The candidates for the next step: enough for num_beams of them to go on, whichever end.
  Beams continuations(const at::Tensor& logits) {
    const auto added = choose_.scores()(logits.to(at::kFloat).log_softmax(-1), rows_of(running_.ids));
    const int64_t vocabulary = added.size(1);
    const auto all =
        (added.view({prompts_, beams_, -1}) + running_.scores.unsqueeze(-1)).view({prompts_, -1});
    const auto ends = static_cast<int64_t>(config_.eos_token_id.size());
    const int64_t count = std::max<int64_t>(2, 1 + ends) * beams_;
    if (count > all.size(1))
      throw UsageError("[generate] " + std::to_string(ends) + " ids in eos_token_id, of a vocabulary of " +
                       std::to_string(vocabulary) + ", leave beam search nothing to go on with");
    const auto places =
        config_.do_sample ? choose_.draw(all.softmax(-1), count) : std::get<1>(all.topk(count));
    const auto beam = places.div(vocabulary, "floor"), token = places.remainder(vocabulary);
    const auto first = at::arange(prompts_, beam.options()).unsqueeze(1) * beams_;
    auto grown = running_.at_places(beam);
    const auto with = [](const at::Tensor& x, const at::Tensor& more) {
      return at::cat({x, more.unsqueeze(-1)}, 2);
    };
    return {with(grown.ids, token), with(grown.beams, beam + first),
            with(grown.logprobs, added.view({prompts_, -1}).gather(1, places)), all.gather(1, places)};
  }

  /// The best of what had ended before and what has ended now. Only the first num_beams candidates count: the
  /// others are there to go on with.
  void finish(const Beams& candidates, const at::Tensor& ended) {
    auto ending = ended.clone();
    ending.slice(1, beams_).fill_(false);
    auto scores = candidates.scores / std::pow(candidates.beams.size(2), config_.length_penalty);
    if (config_.early_stopping == EarlyStopping::yes)
      scores = scores + is_finished_.all(1, /*keepdim=*/true).to(at::kFloat) * kOut;
    scores = scores + may_improve_.logical_not().to(at::kFloat) * kOut;
    scores = scores + ending.logical_not() * kOut;
    const auto all = finished_.with({candidates.ids, candidates.beams, candidates.logprobs, scores}, pad_);
    const auto best = std::get<1>(all.scores.topk(beams_));
    finished_ = all.at_places(best);
    is_finished_ = at::cat({is_finished_, ending}, 1).gather(1, best);
  }

  /// Whether the best running beam could still be better than the worst that has ended; by its present
  /// length, unless longer ones gain and all are waited for.
  void judge_improvement() {
    const bool longest = config_.early_stopping == EarlyStopping::never && config_.length_penalty > 0;
    const auto length = static_cast<double>(longest ? max_length_ - prompt_length_ : made());
    const auto possible = running_.scores.slice(1, 0, 1) / std::pow(length, config_.length_penalty);
    const auto worst = at::where(is_finished_, finished_.scores.amin(1, /*keepdim=*/true), kOut);
    may_improve_ = may_improve_.logical_and((possible > worst).any(-1, /*keepdim=*/true));
  }

  const GenerationConfig& config_;
  const GenerateCall& call_;
  int64_t beams_, prompts_, prompt_length_, max_length_, pad_;
  Choice choose_;
  Stops stops_;
  Beams running_, finished_;
  at::Tensor is_finished_;  ///< [prompts, beams], of `finished_`
  at::Tensor may_improve_;  ///< [prompts, 1]
};

}  // namespace

GenerateOutput search(Steps& steps, const Prompt& prompt, const GenerationConfig& config,
                      const GenerateCall& call) {
  const at::NoGradGuard no_grad;
  Search beams(prompt, config, call);
  auto position = prompt.positions.select(1, prompt.length() - 1);
  for (auto logits = steps.start(prompt); beams.add(logits);) {
    position = position + 1;
    steps.reorder(beams.continued());
    logits = steps.next(beams.last_tokens().unsqueeze(1), position.unsqueeze(1));
  }
  return beams.result();
}

}  // namespace graft::generation
