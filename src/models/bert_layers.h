// The parts of BERT below its heads: embeddings and the stack of layers.
#pragma once
#include "graft/model.h"
#include "nn/activation.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace graft {

struct BertSizes {
  int64_t hidden, intermediate, heads, layers, vocab, positions, types, padding_idx;
  double eps, hidden_dropout, attention_dropout;
  bool decoder;
  nn::Activation activation;

  /// ConfigError for what is not supported.
  explicit BertSizes(const Config& config);
};

class BertEmbeddings : public torch::nn::Module {
 public:
  BertEmbeddings(const nn::Build& b, const BertSizes& s);
  /// `tokens`: embedded, in either form of the call.
  at::Tensor forward(const at::Tensor& tokens, const ModelInputs& inputs);

  int64_t positions() const { return positions_; }

  std::shared_ptr<nn::Embedding> word_embeddings;

 private:
  void check_length(const ModelInputs& inputs) const;

  int64_t positions_;
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
