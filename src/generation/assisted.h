// Assisted (speculative) decoding: several guessed tokens are checked in one call of the model.
#pragma once
#include "generation/candidates.h"
#include "generation/loop.h"

namespace graft::generation {

/// Whether a call is to be assisted. UsageError for what cannot be.
bool is_assisted(const Prompt& prompt, const GenerationConfig& config, const GenerateCall& call,
                 const PreTrainedModel& model);

/// As run(), and with its tokens: a guess is kept only where the model itself chose that token. Draws, too,
/// are made one for each token and in order, so that a seed means what it means without guesses; unless the
/// guesses were drawn, too (speculative sampling): then the probabilities are the same. For one row.
GenerateOutput run_assisted(Steps& steps, Candidates& candidates, const Prompt& prompt,
                            const GenerationConfig& config, const GenerateCall& call, bool with_logprobs);

}  // namespace graft::generation
