// A prompt made ready: checked, with its mask and its positions, and how far it is to be gone on with.
#pragma once
#include "graft/generate.h"

namespace graft::generation {

struct Prompt {
  at::Tensor ids;        ///< [batch, seq], int64, on the model's device
  at::Tensor mask;       ///< [batch, seq], int64; undefined where nothing is padding
  at::Tensor positions;  ///< [batch, seq]: counted over what is no padding, which is at 0
  int64_t new_tokens;    ///< to add at most
  /// Of an encoder-decoder, whose ids above are its decoder's.
  at::Tensor source_ids = {};   ///< [batch, source]
  at::Tensor source_mask = {};  ///< [batch, source]; undefined where nothing is padding

  int64_t batch() const { return ids.size(0); }
  int64_t length() const { return ids.size(1); }
};

/// Whether an encoder reads the prompt and a decoder writes.
bool is_encoder_decoder(const PreTrainedModel& model);

/// UsageError for what cannot be gone on with.
Prompt prepare(const ModelInputs& given, const GenerationConfig& config, const PreTrainedModel& model);

}  // namespace graft::generation
