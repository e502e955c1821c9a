// Methods that are put on no layer: what they learn comes before the input of a call.
//
// Soft prompts are embeddings before those of the tokens; prefixes are keys and values before those of every
// layer. A file holds the result, `prompt_embeddings`, whatever it was trained through.
#pragma once
#include "adapters/part.h"
#include "graft/model.h"
#include "graft/peft.h"

namespace graft::adapters {

/// What a prompt is built from.
struct PromptBuild {
  const AdapterConfig& config;  ///< complete: with_model_sizes()
  const PreTrainedModel& model;
  TensorSource& source;

  /// As PEFT has it, an encoder is made for training only: a file lacks it, and so does inference_mode.
  bool has_encoder() const { return source.fresh() && !config.boolean("inference_mode"); }
};

/// Makes the embeddings out of what is trained.
class PromptEncoder : public torch::nn::Module {
 public:
  /// [virtual tokens, width]; `training`: with dropout, where the method has it.
  virtual at::Tensor encode(bool training) = 0;
};

class Prompt : public Shared {
 public:
  /// From the file, or `fresh`; [virtual tokens, width].
  Prompt(const PromptBuild& build, at::IntArrayRef shape, const at::Tensor& fresh);
  /// Trained through an encoder.
  Prompt(const PromptBuild& build, std::shared_ptr<PromptEncoder> encoder);

  /// What a call is given; `task_ids` are its rows'.
  virtual VirtualTokens virtual_tokens(const at::Tensor& task_ids) const;

  /// The encoder's tensors are in no file; they have PEFT's names in the model, without the adapter's.
  std::vector<Entry> entries() const override;
  NamedTensors saved() const override;

 protected:
  /// [..., total, width]: those of a call, the first ones.
  at::Tensor of_call(const at::Tensor& all) const;
  at::Tensor embeddings() const { return encoder_ ? encoder_->encode(is_training()) : embeddings_; }

 private:
  int64_t count_;  // of the virtual tokens in a call: the first rows
  at::Tensor embeddings_;
  std::shared_ptr<PromptEncoder> encoder_;
};

/// The prompt of an adapter, null where its method is another.
inline const Prompt* as_prompt(const std::shared_ptr<Shared>& shared) {
  return dynamic_cast<const Prompt*>(shared.get());
}

}  // namespace graft::adapters
