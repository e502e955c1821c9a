#include "models/bert.h"

#include "graft/error.h"
#include "models/bert_layers.h"
#include "models/heads.h"
#include "nn/dropout.h"
#include "nn/loss.h"
#include "nn/mask.h"
#include "nn/prefix_cache.h"

namespace graft {
namespace {

class BertModel : public PreTrainedModel {
 public:
  BertModel(const nn::Build& b, const Config& config, bool with_pooler = true) : PreTrainedModel(config) {
    const BertSizes s(config);
    decoder_ = s.decoder;
    embeddings = b.child<BertEmbeddings>(*this, "embeddings", s);
    encoder = b.child<BertEncoder>(*this, "encoder", s);
    if (with_pooler) pooler = b.child<BertDense>(*this, "pooler", s.hidden, s.hidden, nn::activation("tanh"));
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "BertModel", {"input_ids"},
                 {"attention_mask", "position_ids", "token_type_ids", "past_key_values"});
    const auto hidden = hidden_states(inputs);
    return {.last_hidden_state = hidden, .pooler_output = pooled(hidden)};
  }

  at::Tensor hidden_states(const ModelInputs& inputs) {
    const bool learned = dynamic_cast<const nn::PrefixCache*>(inputs.past_key_values.get()) != nullptr;
    if (inputs.past_key_values && !decoder_ && !learned)
      throw UsageError(
          "[bert] past_key_values needs \"is_decoder\": true in config.json: an encoder's tokens see later "
          "ones");
    const auto x = embeddings->forward(embedded(*this, inputs), inputs);
    const bool recompute = checkpointing_ && is_training();
    const auto cache = cache_for_layers(inputs, recompute);
    // No position_ids here: BERT, unlike Llama, doesn't take packed sequences from them.
    const nn::MaskRequest request{.like = x, .attention_mask = inputs.attention_mask, .cache = cache.get()};
    const BertLayerInputs in{.mask = decoder_ ? nn::causal_mask(request) : nn::bidirectional_mask(request),
                             .cache = cache};
    const auto hidden = encoder->forward(x, in, recompute);
    if (cache) cache->advance(x.size(1));
    return hidden;
  }

  /// Of the first token.
  at::Tensor pooled(const at::Tensor& hidden) { return pooler->forward(hidden.select(1, 0)); }

  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return embeddings->word_embeddings->forward(input_ids);
  }

  void set_checkpointing(bool on) override { checkpointing_ = on; }
  std::optional<int64_t> position_limit() const override { return embeddings->positions(); }
  std::shared_ptr<BertEmbeddings> embeddings;

 private:
  bool checkpointing_ = false, decoder_ = false;
  std::shared_ptr<BertEncoder> encoder;
  std::shared_ptr<BertDense> pooler;
};

class BertTransform : public torch::nn::Module {
 public:
  BertTransform(const nn::Build& b, const BertSizes& s) : activation_(s.activation) {
    dense = b.child<nn::Linear>(*this, "dense", s.hidden, s.hidden);
    LayerNorm = b.child<nn::LayerNorm>(*this, "LayerNorm", s.hidden, s.eps);
  }

  at::Tensor forward(const at::Tensor& x) { return LayerNorm->forward(activation_(dense->forward(x))); }

 private:
  nn::Activation activation_;
  std::shared_ptr<nn::Linear> dense;
  std::shared_ptr<nn::LayerNorm> LayerNorm;
};

/// cls.predictions: from hidden states to the vocabulary, by the input embedding where the config ties them.
class BertPredictions : public torch::nn::Module {
 public:
  BertPredictions(const nn::Build& b, const BertSizes& s, const at::Tensor& table, bool tie) {
    // Untied it takes part in nothing, but transformers' checkpoints hold it.
    bias = b.parameter(*this, "bias", {s.vocab}, {nn::Init::Kind::zeros});
    transform = b.child<BertTransform>(*this, "transform", s);
    if (tie) {
      decoder = b.child<nn::Linear>(*this, "decoder", table);
      decoder->bias = (b / "decoder").tied(*decoder, "bias", bias);
    } else {
      decoder = b.child<nn::Linear>(*this, "decoder", s.hidden, s.vocab);
    }
  }

  at::Tensor forward(const at::Tensor& x) { return decoder->forward(transform->forward(x)); }

 private:
  at::Tensor bias;
  std::shared_ptr<BertTransform> transform;
  std::shared_ptr<nn::Linear> decoder;
};

class BertOnlyMLMHead : public torch::nn::Module {
 public:
  BertOnlyMLMHead(const nn::Build& b, const BertSizes& s, const at::Tensor& table, bool tie) {
    predictions = b.child<BertPredictions>(*this, "predictions", s, table, tie);
  }

  at::Tensor forward(const at::Tensor& x) { return predictions->forward(x); }

 private:
  std::shared_ptr<BertPredictions> predictions;
};

/// What BertLMHeadModel and BertForMaskedLM share: all but the loss and what they take.
class BertWithPredictions : public PreTrainedModel {
 public:
  BertWithPredictions(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    bert = b.child<BertModel>(*this, "bert", config, /*with_pooler=*/false);
    cls = b.child<BertOnlyMLMHead>(*this, "cls", BertSizes(config), bert->embeddings->word_embeddings->weight,
                                   config.boolean("tie_word_embeddings", true));
  }

  void set_checkpointing(bool on) override { bert->set_checkpointing(on); }
  std::optional<int64_t> position_limit() const override { return bert->position_limit(); }
  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return bert->input_embeddings(input_ids);
  }

 protected:
  at::Tensor logits(const ModelInputs& inputs) { return cls->forward(bert->hidden_states(inputs)); }

 private:
  std::shared_ptr<BertModel> bert;
  std::shared_ptr<BertOnlyMLMHead> cls;
};

class BertLMHeadModel : public BertWithPredictions {
 public:
  using BertWithPredictions::BertWithPredictions;

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "BertLMHeadModel", {"input_ids"},
                 {"attention_mask", "position_ids", "token_type_ids", "past_key_values", "labels"});
    ModelOutput out{.logits = logits(inputs)};
    if (inputs.labels.defined()) out.loss = nn::causal_lm_loss(out.logits, inputs.labels);
    return out;
  }
};

class BertForMaskedLM : public BertWithPredictions {
 public:
  using BertWithPredictions::BertWithPredictions;

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "BertForMaskedLM", {"input_ids"},
                 {"attention_mask", "position_ids", "token_type_ids", "labels"});
    ModelOutput out{.logits = logits(inputs)};
    if (inputs.labels.defined()) out.loss = nn::masked_lm_loss(out.logits, inputs.labels);
    return out;
  }
};

class BertForSequenceClassification : public PreTrainedModel {
 public:
  BertForSequenceClassification(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    const BertSizes s(config);
    dropout_ = config.number("classifier_dropout", s.hidden_dropout);
    bert = b.child<BertModel>(*this, "bert", config);
    classifier = b.child<nn::Linear>(*this, "classifier", s.hidden, config.num_labels());
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "BertForSequenceClassification", {"input_ids"},
                 {"attention_mask", "position_ids", "token_type_ids", "past_key_values", "labels"});
    const auto pooled = nn::dropout(bert->pooled(bert->hidden_states(inputs)), dropout_, is_training());
    ModelOutput out{.logits = classifier->forward(pooled)};
    if (inputs.labels.defined()) out.loss = nn::classification_loss(config(), out.logits, inputs.labels);
    return out;
  }

  void set_checkpointing(bool on) override { bert->set_checkpointing(on); }
  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return bert->input_embeddings(input_ids);
  }

 private:
  double dropout_;
  std::shared_ptr<BertModel> bert;
  std::shared_ptr<nn::Linear> classifier;
};

}  // namespace

std::vector<Architecture> bert_architectures() {
  const std::vector<std::pair<std::string, std::string>> tied{
      {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
      {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
  const std::vector<std::string_view> obsolete{"embeddings.position_ids"};
  // Pretraining checkpoints have a pooler, which these heads don't use.
  const std::vector<std::string_view> no_pooler{"embeddings.position_ids", "pooler.dense.weight",
                                                "pooler.dense.bias"};
  const auto row = [](std::string_view name, Task task, auto make) {
    return Architecture{
        .name = name, .model_type = "bert", .task = task, .base_prefix = "bert", .make = make};
  };
  auto base = row("BertModel", Task::base, make_model<BertModel>);
  base.obsolete = obsolete;
  auto causal = row("BertLMHeadModel", Task::causal_lm, make_model<BertLMHeadModel>);
  auto masked = row("BertForMaskedLM", Task::masked_lm, make_model<BertForMaskedLM>);
  for (auto* each : {&causal, &masked}) {
    each->tied = tied;
    each->ties_by_default = true;
    each->obsolete = no_pooler;
  }
  auto classifier = row("BertForSequenceClassification", Task::sequence_classification,
                        make_model<BertForSequenceClassification>);
  classifier.obsolete = obsolete;
  return {base, causal, masked, classifier};
}

}  // namespace graft
