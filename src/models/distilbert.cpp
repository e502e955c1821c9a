#include "models/distilbert.h"

#include "graft/error.h"
#include "models/encoder_heads.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "nn/embedding.h"
#include "nn/mask.h"
#include "nn/norm.h"

namespace graft {
namespace {

constexpr double kEps = 1e-12;  // of every norm; no config field says otherwise

struct DistilBertSizes {
  int64_t dim, hidden, heads, layers, vocab, positions, padding_idx;
  double dropout, attention_dropout;
  bool sinusoidal;
  nn::Activation activation;

  explicit DistilBertSizes(const Config& config)
      : dim(aliased_size(config, "dim", "hidden_size", 768)),
        hidden(config.size("hidden_dim", 3072)),
        heads(aliased_size(config, "n_heads", "num_attention_heads", 12)),
        layers(layer_count(config, "n_layers", layer_count(config, "num_hidden_layers", 6))),
        vocab(config.size("vocab_size", 30522)),
        positions(config.size("max_position_embeddings", 512)),
        padding_idx(padding_row(pad_token(config, 0), vocab)),
        dropout(nn::dropout_rate(config, "dropout", 0.1)),
        attention_dropout(nn::dropout_rate(config, "attention_dropout", 0.1)),
        sinusoidal(config.boolean("sinusoidal_pos_embds", false)),
        activation(nn::activation(config.string("activation", "gelu"), "activation")) {
    check_common_config(config);
    if (dim % heads != 0)
      throw ConfigError("[distilbert] \"n_heads\" (" + std::to_string(heads) + ") does not divide \"dim\" (" +
                        std::to_string(dim) + ")");
    // Of heads that this checkpoint may not have.
    config.acknowledge({"qa_dropout", "seq_classif_dropout"});
  }
};

class Embeddings : public torch::nn::Module {
 public:
  Embeddings(const nn::Build& b, const DistilBertSizes& s) : dropout_(s.dropout), positions_(s.positions) {
    word_embeddings = b.child<nn::Embedding>(*this, "word_embeddings", s.vocab, s.dim, s.padding_idx);
    // Sinusoids are where training starts; they are trained like any other weight.
    const auto init = s.sinusoidal ? nn::Init{nn::Init::Kind::sinusoidal} : b.normal();
    position_embeddings = b.child<nn::Embedding>(*this, "position_embeddings", s.positions, s.dim, init);
    LayerNorm = b.child<nn::LayerNorm>(*this, "LayerNorm", s.dim, kEps);
  }

  at::Tensor forward(const at::Tensor& tokens, const ModelInputs& inputs) {
    check_counted_positions(inputs, positions_);
    const auto x = tokens + position_embeddings->forward(positions_or_default(inputs, tokens));
    return nn::dropout(LayerNorm->forward(x), dropout_, is_training());
  }

  int64_t positions() const { return positions_; }

  std::shared_ptr<nn::Embedding> word_embeddings;

 private:
  double dropout_;
  int64_t positions_;
  std::shared_ptr<nn::Embedding> position_embeddings;
  std::shared_ptr<nn::LayerNorm> LayerNorm;
};

class SelfAttention : public torch::nn::Module {
 public:
  SelfAttention(const nn::Build& b, const DistilBertSizes& s)
      : head_dim_(s.dim / s.heads), dropout_(s.attention_dropout) {
    q_lin = b.child<nn::Linear>(*this, "q_lin", s.dim, s.dim);
    k_lin = b.child<nn::Linear>(*this, "k_lin", s.dim, s.dim);
    v_lin = b.child<nn::Linear>(*this, "v_lin", s.dim, s.dim);
    out_lin = b.child<nn::Linear>(*this, "out_lin", s.dim, s.dim);
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    const auto heads = [&](const nn::Linear& projection) {
      return nn::split_heads(projection.forward(x), head_dim_);
    };
    const auto q = heads(*q_lin), k = heads(*k_lin), v = heads(*v_lin);
    return out_lin->forward(nn::attend(q, k, v, mask,
                                       {.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_)),
                                        .dropout = is_training() ? dropout_ : 0.0}));
  }

 private:
  int64_t head_dim_;
  double dropout_;
  std::shared_ptr<nn::Linear> q_lin, k_lin, v_lin, out_lin;
};

class FFN : public torch::nn::Module {
 public:
  FFN(const nn::Build& b, const DistilBertSizes& s) : dropout_(s.dropout), activation_(s.activation) {
    lin1 = b.child<nn::Linear>(*this, "lin1", s.dim, s.hidden);
    lin2 = b.child<nn::Linear>(*this, "lin2", s.hidden, s.dim);
  }

  at::Tensor forward(const at::Tensor& x) {
    return nn::dropout(lin2->forward(activation_(lin1->forward(x))), dropout_, is_training());
  }

 private:
  double dropout_;
  nn::Activation activation_;
  std::shared_ptr<nn::Linear> lin1, lin2;
};

class TransformerBlock : public torch::nn::Module {
 public:
  TransformerBlock(const nn::Build& b, const DistilBertSizes& s) {
    attention = b.child<SelfAttention>(*this, "attention", s);
    sa_layer_norm = b.child<nn::LayerNorm>(*this, "sa_layer_norm", s.dim, kEps);
    ffn = b.child<FFN>(*this, "ffn", s);
    output_layer_norm = b.child<nn::LayerNorm>(*this, "output_layer_norm", s.dim, kEps);
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    const auto attended = sa_layer_norm->forward(attention->forward(x, mask) + x);
    return output_layer_norm->forward(ffn->forward(attended) + attended);
  }

 private:
  std::shared_ptr<SelfAttention> attention;
  std::shared_ptr<nn::LayerNorm> sa_layer_norm, output_layer_norm;
  std::shared_ptr<FFN> ffn;
};

class Transformer : public torch::nn::Module {
 public:
  Transformer(const nn::Build& b, const DistilBertSizes& s) {
    layer = b.child<nn::List<TransformerBlock>>(*this, "layer", s.layers, [&](const nn::Build& at, int64_t) {
      return std::make_shared<TransformerBlock>(at, s);
    });
  }

  at::Tensor forward(at::Tensor x, const at::Tensor& mask, bool recompute) {
    return nn::through(*layer, std::move(x), recompute, mask);
  }

 private:
  std::shared_ptr<nn::List<TransformerBlock>> layer;
};

class DistilBertModel : public PreTrainedModel {
 public:
  static constexpr const char* kPrefix = "distilbert";
  static double head_dropout(const Config& config) { return nn::dropout_rate(config, "dropout", 0.1); }

  DistilBertModel(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    const DistilBertSizes s(config);
    embeddings = b.child<Embeddings>(*this, "embeddings", s);
    transformer = b.child<Transformer>(*this, "transformer", s);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "DistilBertModel", {"input_ids"}, {"attention_mask", "position_ids"});
    const auto x = embeddings->forward(embedded(*this, inputs), inputs);
    const auto mask = nn::bidirectional_mask({.like = x, .attention_mask = inputs.attention_mask});
    return {.last_hidden_state = transformer->forward(x, mask, checkpointing_ && is_training())};
  }

  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return embeddings->word_embeddings->forward(input_ids);
  }
  void set_checkpointing(bool on) override { checkpointing_ = on; }
  std::optional<int64_t> position_limit() const override { return embeddings->positions(); }
  const at::Tensor& token_table() const { return embeddings->word_embeddings->weight; }
  int64_t width() const { return token_table().size(1); }

 private:
  bool checkpointing_ = false;
  std::shared_ptr<Embeddings> embeddings;
  std::shared_ptr<Transformer> transformer;
};

using Headed = BodyWithHead<DistilBertModel>;

class DistilBertForMaskedLM : public Headed {
 public:
  DistilBertForMaskedLM(const nn::Build& b, const Config& config)
      : Headed(b, config), activation_(DistilBertSizes(config).activation) {
    const auto& table = body().token_table();
    const int64_t dim = body().width();
    vocab_transform = b.child<nn::Linear>(*this, "vocab_transform", dim, dim);
    vocab_layer_norm = b.child<nn::LayerNorm>(*this, "vocab_layer_norm", dim, kEps);
    vocab_projector = config.boolean("tie_word_embeddings", true)
                          ? b.child<nn::Linear>(*this, "vocab_projector", table, /*bias=*/true)
                          : b.child<nn::Linear>(*this, "vocab_projector", dim, table.size(0));
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    const auto x = activation_(vocab_transform->forward(hidden_states(inputs)));
    ModelOutput out{.logits = vocab_projector->forward(vocab_layer_norm->forward(x))};
    if (inputs.labels.defined()) out.loss = nn::token_loss(out.logits, inputs.labels);
    return out;
  }

 private:
  nn::Activation activation_;
  std::shared_ptr<nn::Linear> vocab_transform, vocab_projector;
  std::shared_ptr<nn::LayerNorm> vocab_layer_norm;
};

class DistilBertForSequenceClassification : public Headed {
 public:
  DistilBertForSequenceClassification(const nn::Build& b, const Config& config)
      : Headed(b, config), dropout_(nn::dropout_rate(config, "seq_classif_dropout", 0.2)) {
    pre_classifier = b.child<nn::Linear>(*this, "pre_classifier", body().width(), body().width());
    classifier = b.child<nn::Linear>(*this, "classifier", body().width(), config.num_labels());
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    const auto pooled = at::relu(pre_classifier->forward(hidden_states(inputs).select(1, 0)));
    ModelOutput out{.logits = classifier->forward(nn::dropout(pooled, dropout_, is_training()))};
    if (inputs.labels.defined()) out.loss = nn::classification_loss(config(), out.logits, inputs.labels);
    return out;
  }

 private:
  double dropout_;
  std::shared_ptr<nn::Linear> pre_classifier, classifier;
};

}  // namespace

std::vector<Architecture> distilbert_architectures() {
  const auto row = [](std::string_view name, Task task, auto make) {
    return Architecture{.name = name,
                        .model_type = "distilbert",
                        .task = task,
                        .base_prefix = "distilbert",
                        .make = make,
                        .obsolete = {"embeddings.position_ids"}};
  };
  auto masked = row("DistilBertForMaskedLM", Task::masked_lm, make_model<DistilBertForMaskedLM>);
  masked.tied = {{"vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"}};
  masked.ties_by_default = true;
  return {row("DistilBertModel", Task::base, make_model<DistilBertModel>), masked,
          row("DistilBertForSequenceClassification", Task::sequence_classification,
              make_model<DistilBertForSequenceClassification>),
          row("DistilBertForTokenClassification", Task::token_classification,
              make_model<EncoderTokenClassifier<DistilBertModel>>)};
}

}  // namespace graft
