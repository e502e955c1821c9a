// Beam search: of each prompt the num_beams likeliest beginnings are continued side by side.
#pragma once
#include "generation/loop.h"

namespace graft::generation {

/// transformers' beam search, its draws included (do_sample): the same tokens, scores and order. `prompt` has
/// num_beams copies of each row.
GenerateOutput search(Steps& steps, const Prompt& prompt, const GenerationConfig& config,
                      const GenerateCall& call);

}  // namespace graft::generation
