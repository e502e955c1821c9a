#include "models/bert.h"

#include "models/bert_body.h"
#include "models/encoder_heads.h"
#include "nn/dropout.h"

namespace graft {
namespace {

class BertModel : public BertBody {
 public:
  static constexpr const char* kPrefix = "bert";
  BertModel(const nn::Build& b, const Config& config, bool with_pooler = true)
      : BertBody(b, config, kBert, with_pooler) {}
};

/// As most heads hold it.
class BertWithoutPooler : public BertModel {
 public:
  BertWithoutPooler(const nn::Build& b, const Config& config) : BertModel(b, config, /*with_pooler=*/false) {}
  static double head_dropout(const Config& config) { return bert_classifier_dropout(config); }
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
    cls = b.child<BertOnlyMLMHead>(*this, "cls", BertSizes(config), bert->token_table(),
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
    if (inputs.labels.defined()) out.loss = nn::token_loss(out.logits, inputs.labels);
    return out;
  }
};

class BertForSequenceClassification : public PreTrainedModel {
 public:
  BertForSequenceClassification(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    dropout_ = bert_classifier_dropout(config);
    bert = b.child<BertModel>(*this, "bert", config);
    classifier = b.child<nn::Linear>(*this, "classifier", bert->width(), config.num_labels());
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
  auto tagger = row("BertForTokenClassification", Task::token_classification,
                    make_model<EncoderTokenClassifier<BertWithoutPooler>>);
  tagger.obsolete = no_pooler;
  return {base, causal, masked, classifier, tagger};
}

}  // namespace graft
