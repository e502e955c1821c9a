#include "models/bert_layers.h"

#include <algorithm>

#include "graft/error.h"
#include "models/heads.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "nn/dropout.h"

namespace graft {
namespace {

class BertSelfAttention : public torch::nn::Module {
 public:
  BertSelfAttention(const nn::Build& b, const BertSizes& s, int64_t layer)
      : head_dim_(s.hidden / s.heads), layer_(layer), dropout_(s.attention_dropout), causal_(s.decoder) {
    query = b.child<nn::Linear>(*this, "query", s.hidden, s.hidden);
    key = b.child<nn::Linear>(*this, "key", s.hidden, s.hidden);
    value = b.child<nn::Linear>(*this, "value", s.hidden, s.hidden);
  }

  at::Tensor forward(const at::Tensor& x, const BertLayerInputs& in) {
    const auto q = nn::split_heads(query->forward(x), head_dim_);
    auto k = nn::split_heads(key->forward(x), head_dim_);
    auto v = nn::split_heads(value->forward(x), head_dim_);
    if (in.cache) std::tie(k, v) = in.cache->update(layer_, k, v);
    return nn::attend(q, k, v, in.mask,
                      {.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_)),
                       .causal = causal_,
                       .dropout = is_training() ? dropout_ : 0.0});
  }

 private:
  int64_t head_dim_, layer_;
  double dropout_;
  bool causal_;
  std::shared_ptr<nn::Linear> query, key, value;
};

/// A projection back to the hidden size, added to the residual and normalised: BertSelfOutput and BertOutput.
class BertOutput : public torch::nn::Module {
 public:
  BertOutput(const nn::Build& b, const BertSizes& s, int64_t in_features) : dropout_(s.hidden_dropout) {
    dense = b.child<nn::Linear>(*this, "dense", in_features, s.hidden);
    LayerNorm = b.child<nn::LayerNorm>(*this, "LayerNorm", s.hidden, s.eps);
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual) {
    return LayerNorm->forward(nn::dropout(dense->forward(x), dropout_, is_training()) + residual);
  }

 private:
  double dropout_;
  std::shared_ptr<nn::Linear> dense;
  std::shared_ptr<nn::LayerNorm> LayerNorm;
};

class BertAttention : public torch::nn::Module {
 public:
  BertAttention(const nn::Build& b, const BertSizes& s, int64_t layer) {
    self = b.child<BertSelfAttention>(*this, "self", s, layer);
    output = b.child<BertOutput>(*this, "output", s, s.hidden);
  }

  at::Tensor forward(const at::Tensor& x, const BertLayerInputs& in) {
    return output->forward(self->forward(x, in), x);
  }

 private:
  std::shared_ptr<BertSelfAttention> self;
  std::shared_ptr<BertOutput> output;
};

}  // namespace

BertSizes::BertSizes(const Config& config, const BertFamily& family)
    : hidden(config.size("hidden_size", 768)),
      intermediate(config.size("intermediate_size", 3072)),
      heads(config.size("num_attention_heads", 12)),
      layers(layer_count(config, "num_hidden_layers", 12)),
      vocab(config.size("vocab_size", family.vocab)),
      positions(config.size("max_position_embeddings", 512)),
      types(config.size("type_vocab_size", 2)),
      padding_idx(padding_row(pad_token(config, family.pad), vocab)),
      eps(norm_eps(config, "layer_norm_eps", 1e-12)),
      hidden_dropout(nn::dropout_rate(config, "hidden_dropout_prob", 0.1)),
      attention_dropout(nn::dropout_rate(config, "attention_probs_dropout_prob", 0.1)),
      decoder(config.boolean("is_decoder", false)),
      positions_after_padding(family.positions_after_padding),
      activation(nn::activation(config.string("hidden_act", "gelu"))) {
  check_common_config(config);
  const std::string who = "[" + std::string(family.name) + "] ";
  if (hidden % heads != 0)
    throw ConfigError(who + "\"num_attention_heads\" (" + std::to_string(heads) +
                      ") does not divide \"hidden_size\" (" + std::to_string(hidden) + ")");
  // transformers 5 no longer reads this field and would compute absolute positions with a checkpoint trained
  // for others.
  const auto kind = config.string("position_embedding_type", "absolute");
  if (kind != "absolute")
    throw ConfigError(who + "\"position_embedding_type\" is \"" + kind +
                      "\"; only \"absolute\" is supported");
  if (positions_after_padding && (padding_idx < 0 || padding_idx >= positions))
    throw ConfigError(who + "\"pad_token_id\" must be a row of the " + std::to_string(positions) +
                      " positions (\"max_position_embeddings\"): positions are counted from it");
  // A classifier's, and Google's notes on the pooler of the multilingual checkpoints, which no implementation
  // reads.
  config.acknowledge({"classifier_dropout", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
                      "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"});
}

BertEmbeddings::BertEmbeddings(const nn::Build& b, const BertSizes& s)
    : positions_(s.positions),
      padding_idx_(s.padding_idx),
      first_(s.positions_after_padding ? s.padding_idx + 1 : 0),
      dropout_(s.hidden_dropout) {
  word_embeddings = b.child<nn::Embedding>(*this, "word_embeddings", s.vocab, s.hidden, s.padding_idx);
  position_embeddings = b.child<nn::Embedding>(*this, "position_embeddings", s.positions, s.hidden,
                                               s.positions_after_padding ? s.padding_idx : -1);
  token_type_embeddings = b.child<nn::Embedding>(*this, "token_type_embeddings", s.types, s.hidden);
  LayerNorm = b.child<nn::LayerNorm>(*this, "LayerNorm", s.hidden, s.eps);
}

at::Tensor BertEmbeddings::forward(const at::Tensor& tokens, const ModelInputs& inputs) {
  check_length(inputs);
  const auto positions = positions_of(tokens, inputs);
  const auto types = inputs.token_type_ids.defined() ? inputs.token_type_ids : at::zeros_like(positions);
  const auto x = tokens + token_type_embeddings->forward(types) + position_embeddings->forward(positions);
  return nn::dropout(LayerNorm->forward(x), dropout_, is_training());
}

at::Tensor BertEmbeddings::positions_of(const at::Tensor& tokens, const ModelInputs& inputs) const {
  if (first_ == 0 || inputs.position_ids.defined()) return positions_or_default(inputs, tokens);
  // Embedded tokens do not show which of them are padding: transformers counts them all, and from the start
  // whatever a cache holds.
  if (!inputs.input_ids.defined())
    return at::arange(first_, first_ + tokens.size(1), tokens.options().dtype(at::kLong)).unsqueeze(0);
  const auto is_token = inputs.input_ids.ne(padding_idx_).to(at::kLong);
  auto counted = is_token.cumsum(1);
  if (inputs.past_key_values) counted = counted + inputs.past_key_values->seen_tensor(tokens.device());
  return counted * is_token + padding_idx_;
}

// On CUDA a lookup past the table would be a device assertion, which ends the process.
void BertEmbeddings::check_length(const ModelInputs& inputs) const {
  if (inputs.position_ids.defined()) return;
  const int64_t seen = inputs.past_key_values ? inputs.past_key_values->seen() : 0;
  const int64_t length = seen + token_count(inputs);
  if (length > positions())
    throw UsageError("[models] a sequence of " + std::to_string(length) + " tokens is longer than the " +
                     std::to_string(positions()) +
                     " positions that \"max_position_embeddings\" leaves for one");
}

BertDense::BertDense(const nn::Build& b, int64_t in_features, int64_t out_features, nn::Activation activation)
    : activation_(activation) {
  dense = b.child<nn::Linear>(*this, "dense", in_features, out_features);
}

class BertLayer : public torch::nn::Module {
 public:
  BertLayer(const nn::Build& b, const BertSizes& s, int64_t layer) {
    attention = b.child<BertAttention>(*this, "attention", s, layer);
    intermediate = b.child<BertDense>(*this, "intermediate", s.hidden, s.intermediate, s.activation);
    output = b.child<BertOutput>(*this, "output", s, s.intermediate);
  }

  at::Tensor forward(const at::Tensor& x, const BertLayerInputs& in) {
    const auto attended = attention->forward(x, in);
    return output->forward(intermediate->forward(attended), attended);
  }

 private:
  std::shared_ptr<BertAttention> attention;
  std::shared_ptr<BertDense> intermediate;
  std::shared_ptr<BertOutput> output;
};

BertEncoder::BertEncoder(const nn::Build& b, const BertSizes& s) {
  layer = b.child<nn::List<BertLayer>>(*this, "layer", s.layers, [&](const nn::Build& at, int64_t i) {
    return std::make_shared<BertLayer>(at, s, i);
  });
}

at::Tensor BertEncoder::forward(at::Tensor x, const BertLayerInputs& in, bool recompute) {
  return nn::through(*layer, std::move(x), recompute, in);
}

}  // namespace graft
