// A prompt that is keys and values before those of every layer.
#pragma once
#include "adapters/prompt.h"

namespace graft::adapters {

/// A row of the file: a token's keys and values of all layers.
int64_t prefix_width(const AdapterConfig& config);

class Prefix : public Prompt {
 public:
  /// From the file, or `fresh`; [virtual tokens, prefix_width()].
  Prefix(const PromptBuild& build, at::IntArrayRef shape, const at::Tensor& fresh);
  Prefix(const PromptBuild& build, std::shared_ptr<PromptEncoder> encoder);

  VirtualTokens virtual_tokens(const at::Tensor& task_ids) const override;

 private:
  void measure(const PromptBuild& build);
  at::Tensor of_decoder(const at::Tensor& prefix) const;

  int64_t heads_ = 0, head_dim_ = 0;
  int64_t decoder_layers_ = 0;  // 0 where there is one stack only
  at::ScalarType dtype_ = at::kFloat;
};

}  // namespace graft::adapters
