#include "models/t5.h"

#include <ATen/ATen.h>

#include <cmath>

#include "graft/error.h"
#include "models/heads.h"
#include "models/t5_layers.h"
#include "nn/linear.h"
#include "nn/loss.h"

namespace graft {
namespace {

/// Where config.json has no word of it, an untied output was not scaled: T5 1.1's. It is written out, since
/// "tie_word_embeddings" may change when the model is saved.
bool scales_output(const Config& config) {
  return config.boolean("scale_decoder_outputs", config.boolean("tie_word_embeddings", true));
}

Config with_scaling(const Config& given) {
  auto config = Config::from_json(given.dump());
  config.set("scale_decoder_outputs", scales_output(given));
  return config;
}

void check_mask(const at::Tensor& mask, const char* name) {
  if (mask.defined() && mask.dim() != 2)
    throw UsageError(std::string("[t5] ") + name + " must be [batch, seq]");
}

/// What T5's classes share: the table of tokens and the encoder.
class T5WithEncoder : public PreTrainedModel {
 public:
  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return shared->forward(input_ids);
  }
  void set_checkpointing(bool on) override { checkpointing_ = on; }

 protected:
  T5WithEncoder(const nn::Build& b, const Config& config, const T5Sizes& s)
      : PreTrainedModel(with_scaling(config)) {
    shared = b.child<nn::Embedding>(*this, "shared", s.vocab, s.model,
                                    nn::Init{nn::Init::Kind::normal, s.init_factor});
    encoder = b.child<T5Stack>(*this, "encoder", s, /*decoder=*/false, shared->weight);
  }

  at::Tensor encoded(const ModelInputs& inputs) {
    check_mask(inputs.attention_mask, "attention_mask");
    const auto tokens = inputs.inputs_embeds.defined() ? inputs.inputs_embeds
                                                       : encoder->embed_tokens->forward(inputs.input_ids);
    return encoder->forward(tokens, {.mask = inputs.attention_mask, .recompute = recomputes()});
  }
  bool recomputes() const { return checkpointing_ && is_training(); }
  const at::Tensor& token_table() const { return shared->weight; }

 private:
  bool checkpointing_ = false;
  std::shared_ptr<nn::Embedding> shared;
  std::shared_ptr<T5Stack> encoder;
};

class T5EncoderModel : public T5WithEncoder {
 public:
  T5EncoderModel(const nn::Build& b, const Config& config) : T5WithEncoder(b, config, T5Sizes(config)) {}

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "T5EncoderModel", {"input_ids"}, {"attention_mask"});
    return {.last_hidden_state = encoded(inputs)};
  }
};

class T5WithDecoder : public T5WithEncoder {
 protected:
  T5WithDecoder(const nn::Build& b, const Config& config, const T5Sizes& s) : T5WithEncoder(b, config, s) {
    decoder = b.child<T5Stack>(*this, "decoder", s, /*decoder=*/true, token_table());
  }

  at::Tensor decoded(const ModelInputs& inputs, std::string_view who, const at::Tensor& decoder_input_ids) {
    const auto cache = std::dynamic_pointer_cast<EncoderDecoderCache>(inputs.past_key_values);
    if (inputs.past_key_values && !cache)
      throw UsageError(
          "[t5] past_key_values must be an EncoderDecoderCache: the encoder's keys and values "
          "are kept, too");
    if (cache && recomputes())
      throw UsageError("[t5] gradient checkpointing in training cannot be done with a cache");
    const bool held = cache && cache->holds_encoder();
    if (!held)
      check_inputs(
          inputs, who, {"input_ids"},
          {"attention_mask", "decoder_input_ids", "decoder_attention_mask", "past_key_values", "labels"});
    check_mask(inputs.decoder_attention_mask, "decoder_attention_mask");
    const auto source = held ? at::Tensor() : encoded(inputs);
    return decoder->forward(decoder->embed_tokens->forward(decoder_input_ids),
                            {.mask = inputs.decoder_attention_mask,
                             .encoder_states = source,
                             .encoder_mask = inputs.attention_mask,
                             .cache = cache,
                             .recompute = recomputes()});
  }

 private:
  std::shared_ptr<T5Stack> decoder;
};

class T5Model : public T5WithDecoder {
 public:
  T5Model(const nn::Build& b, const Config& config) : T5WithDecoder(b, config, T5Sizes(config)) {}

  ModelOutput forward(const ModelInputs& inputs) override {
    if (!inputs.decoder_input_ids.defined()) throw UsageError("[models] T5Model needs decoder_input_ids");
    if (inputs.labels.defined()) throw UsageError("[models] T5Model takes no labels");
    return {.last_hidden_state = decoded(inputs, "T5Model", inputs.decoder_input_ids)};
  }
};

class T5ForConditionalGeneration : public T5WithDecoder {
 public:
  T5ForConditionalGeneration(const nn::Build& b, const Config& config)
      : T5WithDecoder(b, config, T5Sizes(config)) {
    const T5Sizes s(config);
    if (scales_output(config)) scale_ = 1.0 / std::sqrt(static_cast<double>(s.model));
    // transformers ties them whatever the config says, unless the checkpoint has another one.
    lm_head = b.child<nn::Linear>(*this, "lm_head", token_table());
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    const auto ids = inputs.decoder_input_ids.defined() ? inputs.decoder_input_ids : shifted(inputs.labels);
    auto hidden = decoded(inputs, "T5ForConditionalGeneration", ids);
    if (scale_) hidden = hidden * *scale_;
    ModelOutput out{.logits = lm_head->forward(hidden)};
    if (inputs.labels.defined()) out.loss = nn::token_loss(out.logits, inputs.labels);
    return out;
  }

 private:
  /// The labels one to the right, behind the token that starts a sequence; what is ignored becomes padding.
  at::Tensor shifted(const at::Tensor& labels) const {
    if (!labels.defined())
      throw UsageError(
          "[models] T5ForConditionalGeneration needs decoder_input_ids, or labels to make them of");
    if (labels.dim() != 2) throw UsageError("[t5] labels must be [batch, targets]");
    const auto start = config().optional_integer("decoder_start_token_id");
    if (!start)
      throw UsageError(
          "[t5] labels without decoder_input_ids need \"decoder_start_token_id\" in config.json");
    const auto pad = pad_token(config(), 0);
    if (!pad)
      throw UsageError("[t5] labels without decoder_input_ids need a \"pad_token_id\" in config.json");
    const auto ids = at::constant_pad_nd(labels.slice(1, 0, labels.size(1) - 1), {1, 0}, *start);
    return ids.masked_fill(ids.eq(nn::kIgnoredLabel), *pad);
  }

  std::optional<double> scale_;
  std::shared_ptr<nn::Linear> lm_head;
};

}  // namespace

std::vector<Architecture> t5_architectures() {
  const auto row = [](std::string_view name, Task task, auto make) {
    return Architecture{.name = name,
                        .model_type = "t5",
                        .task = task,
                        .base_prefix = "transformer",
                        .make = make,
                        .init_std_key = "",
                        .tied = {{"encoder.embed_tokens.weight", "shared.weight"},
                                 {"decoder.embed_tokens.weight", "shared.weight"}},
                        .ties_by_default = true,
                        .obsolete = {"EncDecAttention.relative_attention_bias.weight"},
                        .keep_in_fp32 = {"wo"}};
  };
  auto model = row("T5Model", Task::base, make_model<T5Model>);
  model.without = {"lm_head."};
  auto encoder = row("T5EncoderModel", Task::base, make_model<T5EncoderModel>);
  encoder.tied.pop_back();
  encoder.without = {"decoder.", "lm_head."};
  auto generator =
      row("T5ForConditionalGeneration", Task::seq2seq_lm, make_model<T5ForConditionalGeneration>);
  generator.tied.emplace_back("lm_head.weight", "shared.weight");
  return {model, encoder, generator};
}

}  // namespace graft
