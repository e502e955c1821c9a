// Guesses by a smaller model, which goes ahead of the one that counts.
#pragma once
#include "generation/candidates.h"
#include "generation/choice.h"
#include "generation/loop.h"

namespace graft::generation {

/// Greedy, or drawn for speculative sampling, until it is no longer sure: transformers' assistant_model. Its
/// cache keeps what the two models agree on.
class Draft : public Candidates {
 public:
  /// `position_limit`: how many positions the smaller model has, if it has a table of them.
  Draft(std::shared_ptr<Steps> steps, const Prompt& prompt, const GenerationConfig& config,
        std::optional<int64_t> position_limit);
  Guesses after(const std::vector<int64_t>& ids, int64_t most) override;
  int64_t most() const override { return config_.num_assistant_tokens; }

 private:
  /// The logits after `ids`; what the model holds beyond them is forgotten. Undefined: no room.
  at::Tensor catch_up(const std::vector<int64_t>& ids);
  at::Tensor feed(int64_t token);
  bool has_room() const;

  std::shared_ptr<Steps> steps_;
  Prompt prompt_;
  GenerationConfig config_;
  Choice choose_;
  std::optional<int64_t> limit_;
  std::vector<int64_t> fed_;  ///< what its cache holds
  int64_t last_position_;     ///< of the prompt
};

/// What a call's guesses come from: its draft model, over steps that `steps_of` makes for it, or else the
/// text.
std::unique_ptr<Candidates> make_candidates(
    const Prompt& prompt, const GenerationConfig& config, const GenerateCall& call,
    const std::function<std::shared_ptr<Steps>(const std::shared_ptr<PreTrainedModel>&)>& steps_of);

/// UsageError where `draft` cannot go ahead of `model`.
void check_draft(const PreTrainedModel& draft, const PreTrainedModel& model);

}  // namespace graft::generation
