// The heads that decoder models have in common, over any body.
//
// A Body is a PreTrainedModel whose forward gives last_hidden_state and that says
//   kPrefix           the name a headed class holds it under
//   kTiesByDefault    whether lm_head is the token table when config.json does not say
//   kTokenTable       the token table's name in a headed class
//   token_table()     the token embedding's weight, [vocab, width of last_hidden_state]
//   pad_token_id()    what marks padding in input_ids, if anything does
//   token_head(config)    of its token classifier, where it has one
//   cap_logits(logits)    where it does something to the logits of lm_head
#pragma once
#include "models/architecture.h"
#include "models/heads.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/loss.h"

namespace graft {

template <class Body>
class BodyWithHead : public PreTrainedModel {
 public:
  void set_checkpointing(bool on) override { body_->set_checkpointing(on); }
  std::optional<int64_t> position_limit() const override { return body_->position_limit(); }
  std::optional<int64_t> rotation_limit() const override { return body_->rotation_limit(); }
  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return body_->input_embeddings(input_ids);
  }
  at::Tensor last_hidden_state(const ModelInputs& inputs) override { return hidden_states(inputs); }

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
    if constexpr (requires(const Body& b) { b.cap_logits(out.logits); })
      out.logits = this->body().cap_logits(out.logits);
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

/// What differs between token classifiers.
struct TokenHead {
  const char* name;
  double dropout;
  bool bias = true;
};

/// transformers' GenericForTokenClassification.
inline TokenHead generic_token_head(const Config& config) {
  const bool hidden = !config.has("classifier_dropout") && config.has("hidden_dropout");
  return {.name = "score",
          .dropout = nn::dropout_rate(config, hidden ? "hidden_dropout" : "classifier_dropout", 0.1),
          .bias = config.boolean("token_classification_bias", true)};
}

template <class Body>
class TokenClassifier : public BodyWithHead<Body> {
 public:
  TokenClassifier(const nn::Build& b, const Config& config) : BodyWithHead<Body>(b, config) {
    const TokenHead head = Body::token_head(config);
    dropout_ = head.dropout;
    score_ = b.child<nn::Linear>(*this, head.name, this->body().token_table().size(1), config.num_labels(),
                                 head.bias);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    const auto x = nn::dropout(this->hidden_states(inputs), dropout_, this->is_training());
    ModelOutput out{.logits = score_->forward(x)};
    if (inputs.labels.defined()) out.loss = nn::token_classification_loss(out.logits, inputs.labels);
    return out;
  }

 private:
  double dropout_ = 0;
  std::shared_ptr<nn::Linear> score_;
};

/// transformers' names of a family's classes.
struct DecoderNames {
  std::string_view model_type, body, causal_lm, sequence_classification, token_classification;
};

/// The body and its three heads.
template <class Body>
std::vector<Architecture> decoder_architectures(const DecoderNames& names,
                                                const std::vector<std::string_view>& obsolete) {
  const auto row = [&](std::string_view name, Task task, auto make) {
    return Architecture{.name = name,
                        .model_type = names.model_type,
                        .task = task,
                        .base_prefix = Body::kPrefix,
                        .make = make,
                        .ties_by_default = Body::kTiesByDefault,
                        .obsolete = obsolete};
  };
  auto causal = row(names.causal_lm, Task::causal_lm, make_model<CausalLM<Body>>);
  causal.tied.emplace_back("lm_head.weight", Body::kTokenTable);
  return {
      row(names.body, Task::base, make_model<Body>), causal,
      row(names.sequence_classification, Task::sequence_classification, make_model<SequenceClassifier<Body>>),
      row(names.token_classification, Task::token_classification, make_model<TokenClassifier<Body>>)};
}

}  // namespace graft
