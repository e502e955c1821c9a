// The heads that encoders have in common, over any body.
//
// A Body is what decoder_heads.h says, and has
//   width()                 of last_hidden_state
//   head_dropout(config)    before the classifier
#pragma once
#include "models/decoder_heads.h"
#include "nn/dropout.h"

namespace graft {

/// A class for each token.
template <class Body>
class EncoderTokenClassifier : public BodyWithHead<Body> {
 public:
  EncoderTokenClassifier(const nn::Build& b, const Config& config)
      : BodyWithHead<Body>(b, config), dropout_(Body::head_dropout(config)) {
    classifier = b.child<nn::Linear>(*this, "classifier", this->body().width(), config.num_labels());
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    const auto hidden = nn::dropout(this->hidden_states(inputs), dropout_, this->is_training());
    ModelOutput out{.logits = classifier->forward(hidden)};
    if (inputs.labels.defined()) out.loss = nn::token_loss(out.logits, inputs.labels);
    return out;
  }

 private:
  double dropout_;
  std::shared_ptr<nn::Linear> classifier;
};

}  // namespace graft
