// A prompt made ready: checked, with its mask and its positions, and how far it is to be continued.
#pragma once
#include "generation/scores.h"

namespace graft::generation {

/// What adapters are told of the rows in each call.
struct Rows {
  at::Tensor task_ids = {};       ///< [batch]
  at::Tensor alora_offsets = {};  ///< [batch], at the prompt's end; undefined where no aLoRA is at work
  int64_t prompt_length = 0;

  /// An aLoRA works on all that comes after a prompt in which it was invoked, and what a prompt is filled up
  /// with is behind its end, too.
  void put_into(ModelInputs& inputs) const;
};

struct Prompt {
  at::Tensor ids;        ///< [batch, seq], int64, on the model's device
  at::Tensor mask;       ///< [batch, seq], int64; undefined where nothing is padding
  at::Tensor positions;  ///< [batch, seq]: counted over what is no padding, which is at 0
  int64_t new_tokens;    ///< to add at most
  /// What a prompt method puts before every row: they take room and positions, and no column of the above.
  int64_t virtual_tokens = 0;
  /// Of an encoder-decoder, whose ids above are its decoder's.
  at::Tensor source_ids = {};   ///< [batch, source]
  at::Tensor source_mask = {};  ///< [batch, source]; undefined where nothing is padding
  Rows rows = {};
  /// Whether an adapter looks at all tokens of a call (Method::mixes_tokens): what is run must be what
  /// generate() runs, with nothing filled in, left out or guessed.
  bool mixes_tokens = false;

  /// Rows are copies of so many one after the other: the draws or the beams of one prompt.
  int64_t copies = 1;

  int64_t batch() const { return ids.size(0); }
  int64_t length() const { return ids.size(1); }
  int64_t max_length() const { return length() + new_tokens; }
  ScoreContext score_context() const {
    return {length(), max_length(), source_ids.defined() ? source_ids : ids};
  }
  /// What a cache has to hold at most: the last new token is not run through the model.
  int64_t cached() const { return virtual_tokens + length() + new_tokens - 1; }
};

/// Whether an encoder reads the prompt and a decoder writes.
bool is_encoder_decoder(const PreTrainedModel& model);

/// What the adapters of its rows, or those that are active, make of a prompt: aLoRA's places where none are
/// given, and `mixes_tokens`.
void put_adapters(Prompt& prompt, const PeftModel& model, const std::vector<std::string>& names);

/// One name for each row of the prompt, of names for each row that was given.
std::vector<std::string> for_copies(const std::vector<std::string>& names, int64_t copies);

/// The prompt, in as many copies as there are beams or draws. UsageError for what cannot be continued.
/// `vocabulary`: of adapters that know another number of tokens than the model.
Prompt prepare(const ModelInputs& given, const GenerationConfig& config, const PreTrainedModel& model,
               int64_t virtual_tokens = 0, std::optional<int64_t> vocabulary = {});

}  // namespace graft::generation
