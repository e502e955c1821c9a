// The heads that decoder models have in common, over any body.
//
// A Body is a PreTrainedModel whose forward gives last_hidden_state and that says
//   kPrefix           the name a headed class holds it under
//   kTiesByDefault    whether lm_head is the token table when config.json does not say
//   token_table()     the token embedding's weight, [vocab, width of last_hidden_state]
//   pad_token_id()    what marks padding in input_ids, if anything does
#pragma once
#include "models/heads.h"
#include "nn/build.h"
#include "nn/linear.h"
#include "nn/loss.h"

namespace graft {

template <class Body>
class BodyWithHead : public PreTrainedModel {
 public:
  void set_checkpointing(bool on) override { body_->set_checkpointing(on); }
  std::optional<int64_t> position_limit() const override { return body_->position_limit(); }
  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return body_->input_embeddings(input_ids);
  }

 protected:
  BodyWithHead(const nn::Build& b, const Config& config)
      : PreTrainedModel(config), body_(b.child<Body>(*this, Body::kPrefix, config)) {}

  at::Tensor hidden_states(ModelInputs inputs) {
    inputs.labels.reset();  // the head's business: a body takes none
    return body_->forward(inputs).last_hidden_state;
  }
  Body& body() const { return *body_; }

 private:
  std::shared_ptr<Body> body_;
};

template <class Body>
class CausalLM : public BodyWithHead<Body> {
 public:
  CausalLM(const nn::Build& b, const Config& config) : BodyWithHead<Body>(b, config) {
    const auto table = this->body().token_table();
    lm_head = config.boolean("tie_word_embeddings", Body::kTiesByDefault)
                  ? b.child<nn::Linear>(*this, "lm_head", table)
                  : b.child<nn::Linear>(*this, "lm_head", table.size(1), table.size(0), false);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    ModelOutput out{.logits = lm_head->forward(this->hidden_states(inputs))};
    if (inputs.labels.defined()) out.loss = nn::causal_lm_loss(out.logits, inputs.labels);
    return out;
  }

 private:
  std::shared_ptr<nn::Linear> lm_head;
};

template <class Body>
class SequenceClassifier : public BodyWithHead<Body> {
 public:
  SequenceClassifier(const nn::Build& b, const Config& config) : BodyWithHead<Body>(b, config) {
    score =
        b.child<nn::Linear>(*this, "score", this->body().token_table().size(1), config.num_labels(), false);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    const auto every = score->forward(this->hidden_states(inputs));
    ModelOutput out{.logits = last_token_logits(this->body().pad_token_id(), every, inputs.input_ids)};
    if (inputs.labels.defined())
      out.loss = nn::classification_loss(this->config(), out.logits, inputs.labels);
    return out;
  }

 private:
  std::shared_ptr<nn::Linear> score;
};

}  // namespace graft
