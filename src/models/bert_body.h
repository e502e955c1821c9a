// The model below the heads of BERT and RoBERTa, and the heads they share.
#pragma once
#include "models/bert_layers.h"

namespace graft {

class BertBody : public PreTrainedModel {
 public:
  BertBody(const nn::Build& b, const Config& config, const BertFamily& family, bool with_pooler);

  ModelOutput forward(const ModelInputs& inputs) override;
  at::Tensor hidden_states(const ModelInputs& inputs);
  /// Of the first token.
  at::Tensor pooled(const at::Tensor& hidden) { return pooler->forward(hidden.select(1, 0)); }

  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return embeddings->word_embeddings->forward(input_ids);
  }
  void set_checkpointing(bool on) override { checkpointing_ = on; }
  std::optional<int64_t> position_limit() const override { return embeddings->positions(); }
  int64_t width() const { return token_table().size(1); }
  const at::Tensor& token_table() const { return embeddings->word_embeddings->weight; }

 private:
  bool checkpointing_ = false, decoder_ = false;
  BertFamily family_;
  std::shared_ptr<BertEmbeddings> embeddings;
  std::shared_ptr<BertEncoder> encoder;
  std::shared_ptr<BertDense> pooler;
};

/// "classifier_dropout", or the body's own where there is none.
double bert_classifier_dropout(const Config& config);

}  // namespace graft
