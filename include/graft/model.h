// Pretrained models: load, run, save. Architectures, module paths and parameter names are transformers'.
//
//   auto model = graft::AutoModelForCausalLM::from_pretrained("path/to/checkpoint");
//   auto out = model->forward({.input_ids = ids, .attention_mask = mask, .labels = labels});
//   out.loss.backward();
#pragma once
#include <torch/nn/module.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graft/cache.h"
#include "graft/config.h"
#include "graft/leaves.h"

namespace graft {

/// What a model may be given. An undefined tensor is an input that is not there; one that the architecture
/// has no use for is a UsageError.
struct ModelInputs {
  at::Tensor input_ids = {};       ///< [batch, seq], int64
  at::Tensor inputs_embeds = {};   ///< [batch, seq, width]: embedded already, in place of input_ids
  at::Tensor attention_mask = {};  ///< [batch, seq] of 0/1; with a cache [batch, seen + seq]
  at::Tensor position_ids = {};    ///< [batch or 1, seq]
  at::Tensor token_type_ids = {};  ///< [batch, seq]
  at::Tensor pixel_values = {};    ///< [batch, channels, height, width]
  at::Tensor labels = {};
  /// What an encoder-decoder's decoder is given, [batch, targets]; the labels moved by one where absent.
  at::Tensor decoder_input_ids = {};
  at::Tensor decoder_attention_mask = {};  ///< [batch, targets] of 0/1; with a cache [batch, seen + targets]
  std::shared_ptr<KVCache> past_key_values = {};
  // What adapters ask for; a model without such adapters takes none of them.
  at::Tensor task_ids = {};  ///< [batch]: each row's task (POLY, MULTITASK_PROMPT_TUNING)
  /// [batch]: on how many of the last tokens of each row an aLoRA works; found in input_ids where absent.
  at::Tensor alora_offsets = {};
  at::Tensor input_type_mask = {};  ///< [batch, seq]: CPT's kinds of tokens; all are of the loss where absent

  /// How many tokens a row has, beside those a cache holds.
  int64_t new_tokens() const {
    const auto& tokens = decoder_input_ids.defined() ? decoder_input_ids
                         : input_ids.defined()       ? input_ids
                                                     : inputs_embeds;
    return tokens.defined() && tokens.dim() > 1 ? tokens.size(1) : 0;
  }
};

/// What came out; a model fills what its head has.
struct ModelOutput {
  at::Tensor loss = {};
  at::Tensor logits = {};
  at::Tensor last_hidden_state = {};
  at::Tensor pooler_output = {};
};

/// For compile().
template <>
struct Leaves<ModelInputs> {
  static void visit(ModelInputs& inputs, LeafVisitor& visitor) {
    visit_leaves(visitor, inputs.input_ids, inputs.inputs_embeds, inputs.attention_mask, inputs.position_ids,
                 inputs.token_type_ids, inputs.pixel_values, inputs.labels, inputs.decoder_input_ids,
                 inputs.decoder_attention_mask, inputs.task_ids, inputs.alora_offsets,
                 inputs.input_type_mask);
    visitor.fixed(inputs.past_key_values != nullptr);
    if (inputs.past_key_values)
      inputs.past_key_values = inputs.past_key_values->visited(visitor, inputs.new_tokens());
  }
};
template <>
struct Leaves<ModelOutput> {
  static void visit(ModelOutput& output, LeafVisitor& visitor) {
    visit_leaves(visitor, output.loss, output.logits, output.last_hidden_state, output.pooler_output);
  }
};

class PreTrainedModel : public torch::nn::Module {
 public:
  virtual ModelOutput forward(const ModelInputs& inputs) = 0;
  ModelOutput operator()(const ModelInputs& inputs) { return forward(inputs); }

  /// What input_ids become before anything else is done to them: transformers' get_input_embeddings() of
  /// them. A call with the result as `inputs_embeds` is the call with the ids. UsageError where a model takes
  /// none.
  virtual at::Tensor input_embeddings(const at::Tensor& input_ids) const;
  /// What the head is given, [batch, seq, width]. UsageError where an architecture has nothing of the kind.
  virtual at::Tensor last_hidden_state(const ModelInputs& inputs);

  const Config& config() const { return config_; }
  /// transformers' class name, "LlamaForCausalLM".
  const std::string& architecture() const { return architecture_; }
  at::ScalarType dtype() const;
  at::Device device() const;
  /// Weights that were not in the checkpoint and were made fresh (LoadOptions::initialise_missing).
  const std::vector<std::string>& fresh_weights() const { return fresh_weights_; }

  /// How many positions the model has a table for; none where any position can be computed (rotary ones).
  virtual std::optional<int64_t> position_limit() const { return {}; }
  /// Up to how many positions a token comes out the same whatever else is in its call; none where it always
  /// does. Beyond it rotary positions with "dynamic" scaling and LongRoPE follow the longest position of a
  /// call, so that a row would depend on the other rows, and a token on those guessed after it.
  virtual std::optional<int64_t> rotation_limit() const { return {}; }

  /// Writes config.json and model.safetensors (or shards), each whole or not at all. A tensor that two names
  /// share is stored once.
  void save_pretrained(const std::filesystem::path& dir, int64_t max_shard_bytes = 50'000'000'000) const;

  /// Trades time for memory in training: each block's activations are recomputed in the backward pass.
  void gradient_checkpointing_enable() { set_checkpointing(true); }
  void gradient_checkpointing_disable() { set_checkpointing(false); }

  /// Every parameter once, by its first name: tied ones are not repeated, adapters' are left out.
  std::vector<std::pair<std::string, at::Tensor>> unique_parameters() const;

 protected:
  explicit PreTrainedModel(const Config& config) : config_(config) {}
  virtual void set_checkpointing(bool on) = 0;

 private:
  friend struct ModelFactory;
  Config config_;
  std::string architecture_;
  std::vector<std::string> fresh_weights_;
};

/// How from_pretrained goes about it.
struct LoadOptions {
  std::optional<at::ScalarType> dtype = {};  ///< default: what config.json says, else the checkpoint's own
  at::Device device = at::kCPU;
  /// Weights that the checkpoint lacks are made fresh instead of being an error: a new head on a pretrained
  /// body.
  bool initialise_missing = false;
  std::optional<int64_t> num_labels = {};  ///< of a classification head; default: what config.json says
  std::function<void(int64_t done, int64_t total)> progress = {};  ///< bytes
};

/// Picks the class that config.json's `architectures` names.
struct AutoModelForAny {
  static std::shared_ptr<PreTrainedModel> from_pretrained(const std::filesystem::path& dir,
                                                          const LoadOptions& = {});
  /// Fresh weights, as transformers initialises them, by torch's default generator.
  static std::shared_ptr<PreTrainedModel> from_config(const Config& config, const LoadOptions& = {});
};

/// Pick the class for a task by config.json's `model_type`, whatever head the checkpoint has: weights of
/// another head are left out.
struct AutoModel {
  static std::shared_ptr<PreTrainedModel> from_pretrained(const std::filesystem::path& dir,
                                                          const LoadOptions& = {});
};
struct AutoModelForCausalLM {
  static std::shared_ptr<PreTrainedModel> from_pretrained(const std::filesystem::path& dir,
                                                          const LoadOptions& = {});
};
struct AutoModelForMaskedLM {
  static std::shared_ptr<PreTrainedModel> from_pretrained(const std::filesystem::path& dir,
                                                          const LoadOptions& = {});
};
struct AutoModelForSequenceClassification {
  static std::shared_ptr<PreTrainedModel> from_pretrained(const std::filesystem::path& dir,
                                                          const LoadOptions& = {});
};
struct AutoModelForSeq2SeqLM {
  static std::shared_ptr<PreTrainedModel> from_pretrained(const std::filesystem::path& dir,
                                                          const LoadOptions& = {});
};
struct AutoModelForTokenClassification {
  static std::shared_ptr<PreTrainedModel> from_pretrained(const std::filesystem::path& dir,
                                                          const LoadOptions& = {});
};
struct AutoModelForImageClassification {
  static std::shared_ptr<PreTrainedModel> from_pretrained(const std::filesystem::path& dir,
                                                          const LoadOptions& = {});
};

/// Names of all architectures that can be loaded.
std::vector<std::string> known_architectures();

}  // namespace graft
