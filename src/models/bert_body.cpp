#include "models/bert_body.h"

#include "graft/error.h"
#include "models/heads.h"
#include "nn/dropout.h"
#include "nn/mask.h"
#include "nn/prefix_cache.h"

namespace graft {

BertBody::BertBody(const nn::Build& b, const Config& config, const BertFamily& family, bool with_pooler)
    : PreTrainedModel(config), family_(family) {
  const BertSizes s(config, family);
  decoder_ = s.decoder;
  embeddings = b.child<BertEmbeddings>(*this, "embeddings", s);
  encoder = b.child<BertEncoder>(*this, "encoder", s);
  if (with_pooler) pooler = b.child<BertDense>(*this, "pooler", s.hidden, s.hidden, nn::activation("tanh"));
}

ModelOutput BertBody::forward(const ModelInputs& inputs) {
  check_inputs(inputs, family_.model, {"input_ids"},
               {"attention_mask", "position_ids", "token_type_ids", "past_key_values"});
  const auto hidden = hidden_states(inputs);
  return {.last_hidden_state = hidden, .pooler_output = pooler ? pooled(hidden) : at::Tensor()};
}

at::Tensor BertBody::hidden_states(const ModelInputs& inputs) {
  const bool learned = dynamic_cast<const nn::PrefixCache*>(inputs.past_key_values.get()) != nullptr;
  if (inputs.past_key_values && !decoder_ && !learned)
    throw UsageError("[" + std::string(family_.name) +
                     "] past_key_values needs \"is_decoder\": true in config.json: an encoder's tokens see "
                     "later ones");
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

double bert_classifier_dropout(const Config& config) {
  return nn::dropout_rate(config, "classifier_dropout", nn::dropout_rate(config, "hidden_dropout_prob", 0.1));
}

}  // namespace graft
