// The parts of BERT below its heads, which RoBERTa has too: embeddings and the stack of layers.
#pragma once
#include "graft/model.h"
#include "nn/activation.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace graft {

/// What BERT and the models made of its layers do differently.
struct BertFamily {
  std::string_view name;   ///< model_type, and how errors start
  std::string_view model;  ///< the body's class
  int64_t vocab, pad;      ///< where config.json has none
  /// Positions are counted over tokens that are no padding, from the row after the padding's own, at which
  /// padding stays.
  bool positions_after_padding = false;
};

inline constexpr BertFamily kBert{.name = "bert", .model = "BertModel", .vocab = 30522, .pad = 0};
inline constexpr BertFamily kRoberta{
    .name = "roberta", .model = "RobertaModel", .vocab = 50265, .pad = 1, .positions_after_padding = true};

struct BertSizes {
  int64_t hidden, intermediate, heads, layers, vocab, positions, types, padding_idx;
  double eps, hidden_dropout, attention_dropout;
  bool decoder, positions_after_padding;
  nn::Activation activation;

  /// ConfigError for what is not supported.
  explicit BertSizes(const Config& config, const BertFamily& family = kBert);
};

class BertEmbeddings : public torch::nn::Module {
 public:
  BertEmbeddings(const nn::Build& b, const BertSizes& s);
  /// `tokens`: embedded, in either form of the call.
  at::Tensor forward(const at::Tensor& tokens, const ModelInputs& inputs);

  /// The longest sequence there are positions for.
  int64_t positions() const { return positions_ - first_; }

  std::shared_ptr<nn::Embedding> word_embeddings;

 private:
  void check_length(const ModelInputs& inputs) const;
  at::Tensor positions_of(const at::Tensor& tokens, const ModelInputs& inputs) const;

  int64_t positions_, padding_idx_;
  int64_t first_;  ///< the position of a sequence's first token
  double dropout_;
  std::shared_ptr<nn::Embedding> position_embeddings, token_type_embeddings;
  std::shared_ptr<nn::LayerNorm> LayerNorm;
};

/// A linear layer named "dense" and an activation: transformers' BertIntermediate and BertPooler.
class BertDense : public torch::nn::Module {
 public:
  BertDense(const nn::Build& b, int64_t in_features, int64_t out_features, nn::Activation activation);
  at::Tensor forward(const at::Tensor& x) { return activation_(dense->forward(x)); }

 private:
  nn::Activation activation_;
  std::shared_ptr<nn::Linear> dense;
};

/// What every layer of one call is given.
struct BertLayerInputs {
  at::Tensor mask;
  std::shared_ptr<KVCache> cache;
};

class BertLayer;

class BertEncoder : public torch::nn::Module {
 public:
  BertEncoder(const nn::Build& b, const BertSizes& s);
  /// `recompute`: gradient checkpointing, layer by layer.
  at::Tensor forward(at::Tensor x, const BertLayerInputs& in, bool recompute);

 private:
  std::shared_ptr<nn::List<BertLayer>> layer;
};

}  // namespace graft
