#include "models/roberta.h"

#include "models/bert_body.h"
#include "models/encoder_heads.h"
#include "nn/dropout.h"

namespace graft {
namespace {

class RobertaModel : public BertBody {
 public:
  static constexpr const char* kPrefix = "roberta";
  RobertaModel(const nn::Build& b, const Config& config, bool with_pooler = true)
      : BertBody(b, config, kRoberta, with_pooler) {}
};

/// As every head holds it.
class RobertaWithoutPooler : public RobertaModel {
 public:
  RobertaWithoutPooler(const nn::Build& b, const Config& config)
      : RobertaModel(b, config, /*with_pooler=*/false) {}
  static double head_dropout(const Config& config) { return bert_classifier_dropout(config); }
};

using Headed = BodyWithHead<RobertaWithoutPooler>;

/// From hidden states to the vocabulary, by the input embedding where the config ties them.
class RobertaLMHead : public torch::nn::Module {
 public:
  RobertaLMHead(const nn::Build& b, const BertSizes& s, const at::Tensor& table, bool tie) {
    // Untied it takes part in nothing, but transformers' checkpoints hold it.
    bias = b.parameter(*this, "bias", {s.vocab}, {nn::Init::Kind::zeros});
    dense = b.child<nn::Linear>(*this, "dense", s.hidden, s.hidden);
    layer_norm = b.child<nn::LayerNorm>(*this, "layer_norm", s.hidden, s.eps);
    if (tie) {
      decoder = b.child<nn::Linear>(*this, "decoder", table);
      decoder->bias = (b / "decoder").tied(*decoder, "bias", bias);
    } else {
      decoder = b.child<nn::Linear>(*this, "decoder", s.hidden, s.vocab);
    }
  }

  /// The activation is gelu whatever "hidden_act" says, as in transformers.
  at::Tensor forward(const at::Tensor& x) {
    return decoder->forward(layer_norm->forward(gelu_(dense->forward(x))));
  }

 private:
  nn::Activation gelu_ = nn::activation("gelu");
  at::Tensor bias;
  std::shared_ptr<nn::Linear> dense, decoder;
  std::shared_ptr<nn::LayerNorm> layer_norm;
};

using Loss = at::Tensor (*)(const at::Tensor& logits, const at::Tensor& labels);

template <Loss loss>
class RobertaForLM : public Headed {
 public:
  RobertaForLM(const nn::Build& b, const Config& config) : Headed(b, config) {
    lm_head = b.child<RobertaLMHead>(*this, "lm_head", BertSizes(config, kRoberta), body().token_table(),
                                     config.boolean("tie_word_embeddings", true));
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    ModelOutput out{.logits = lm_head->forward(hidden_states(inputs))};
    if (inputs.labels.defined()) out.loss = loss(out.logits, inputs.labels);
    return out;
  }

 private:
  std::shared_ptr<RobertaLMHead> lm_head;
};

class RobertaClassificationHead : public torch::nn::Module {
 public:
  RobertaClassificationHead(const nn::Build& b, int64_t width, const Config& config)
      : dropout_(bert_classifier_dropout(config)) {
    dense = b.child<nn::Linear>(*this, "dense", width, width);
    out_proj = b.child<nn::Linear>(*this, "out_proj", width, config.num_labels());
  }

  at::Tensor forward(const at::Tensor& first_token) {
    const auto drop = [&](const at::Tensor& x) { return nn::dropout(x, dropout_, is_training()); };
    return out_proj->forward(drop(at::tanh(dense->forward(drop(first_token)))));
  }

 private:
  double dropout_;
  std::shared_ptr<nn::Linear> dense, out_proj;
};

class RobertaForSequenceClassification : public Headed {
 public:
  RobertaForSequenceClassification(const nn::Build& b, const Config& config) : Headed(b, config) {
    classifier = b.child<RobertaClassificationHead>(*this, "classifier", body().width(), config);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    ModelOutput out{.logits = classifier->forward(hidden_states(inputs).select(1, 0))};
    if (inputs.labels.defined()) out.loss = nn::classification_loss(config(), out.logits, inputs.labels);
    return out;
  }

 private:
  std::shared_ptr<RobertaClassificationHead> classifier;
};

}  // namespace

std::vector<Architecture> roberta_architectures() {
  const auto row = [](std::string_view name, Task task, auto make) {
    return Architecture{.name = name,
                        .model_type = "roberta",
                        .task = task,
                        .base_prefix = "roberta",
                        .make = make,
                        // Pretraining checkpoints have a pooler, which no head uses.
                        .obsolete = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"}};
  };
  auto base = row("RobertaModel", Task::base, make_model<RobertaModel>);
  base.obsolete = {"embeddings.position_ids"};
  auto causal = row("RobertaForCausalLM", Task::causal_lm, make_model<RobertaForLM<nn::causal_lm_loss>>);
  auto masked = row("RobertaForMaskedLM", Task::masked_lm, make_model<RobertaForLM<nn::token_loss>>);
  for (auto* each : {&causal, &masked}) {
    each->tied = {{"lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
                  {"lm_head.decoder.bias", "lm_head.bias"}};
    each->ties_by_default = true;
  }
  return {base, causal, masked,
          row("RobertaForSequenceClassification", Task::sequence_classification,
              make_model<RobertaForSequenceClassification>),
          row("RobertaForTokenClassification", Task::token_classification,
              make_model<EncoderTokenClassifier<RobertaWithoutPooler>>)};
}

}  // namespace graft
