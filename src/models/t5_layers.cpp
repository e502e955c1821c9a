#include "models/t5_layers.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "graft/error.h"
#include "models/heads.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/mask.h"
#include "nn/weighted.h"

namespace graft {

using NoBias = nn::Linear::NoBias;

/// No mean is taken off and nothing is added. The result has the weight's dtype, whatever the residual
/// stream's is.
class T5LayerNorm : public nn::WeightedLayer {
 public:
  T5LayerNorm(const nn::Build& b, const T5Sizes& s) : WeightedLayer(b), eps_(s.eps) {
    weight = b.parameter(*this, "weight", {s.model}, {nn::Init::Kind::constant, s.init_factor});
  }
  at::Tensor apply(const at::Tensor& x, const at::Tensor& with_weight, const at::Tensor&) const override {
    const auto variance = x.to(at::kFloat).pow(2).mean(-1, /*keepdim=*/true);
    const auto normed = x * at::rsqrt(variance + eps_);
    return with_weight * normed.to(with_weight.scalar_type());
  }
  nn::LayerKind kind() const override { return nn::LayerKind::norm; }

 private:
  double eps_;
};

namespace {

nn::Init normal(const T5Sizes& s, int64_t width) {
  return {nn::Init::Kind::normal, s.init_factor / std::sqrt(static_cast<double>(width))};
}

/// What a masked score becomes.
double lowest(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return std::numeric_limits<at::Half>::lowest();
    case at::kBFloat16:
      return std::numeric_limits<at::BFloat16>::lowest();
    case at::kDouble:
      return std::numeric_limits<double>::lowest();
    default:
      return std::numeric_limits<float>::lowest();
  }
}

/// float16 overflows in large checkpoints: what is infinite becomes large.
at::Tensor within_half(const at::Tensor& x) {
  if (x.scalar_type() != at::kHalf) return x;
  const double most = std::numeric_limits<at::Half>::max();
  const auto limit =
      at::where(x.isinf().any(), at::Scalar(most - 1000), at::Scalar(most)).to(x.scalar_type());
  return at::clamp(x, -limit, limit);
}

/// The bucket of each distance from -max_distance to max_distance; those farther away are in the last one's.
/// A table, since it is full of roundings that must come out as transformers' do wherever it is computed.
at::Tensor distance_buckets(const T5Sizes& s, bool bidirectional) {
  const int64_t buckets = bidirectional ? s.buckets / 2 : s.buckets, exact = buckets / 2;
  const auto distance = at::arange(-s.max_distance, s.max_distance + 1, at::kLong);
  const auto away = bidirectional ? distance.abs() : -distance.clamp_max(0);
  // Half of the buckets are of one distance each, the others grow.
  const auto grown =
      (at::log(away.to(at::kFloat) / exact) /
       std::log(static_cast<double>(s.max_distance) / static_cast<double>(exact)) * (buckets - exact))
          .to(at::kLong) +
      exact;
  const auto bucket = at::where(away < exact, away, grown.clamp_max(buckets - 1));
  return bidirectional ? bucket + distance.gt(0).to(at::kLong) * buckets : bucket;
}

class T5Attention : public torch::nn::Module {
 public:
  enum class Kind { encoder, decoder, cross };

  T5Attention(const nn::Build& b, const T5Sizes& s, Kind kind, int64_t layer)
      : head_dim_(s.key), layer_(layer), max_distance_(s.max_distance), kind_(kind), dropout_(s.dropout) {
    q = b.child<nn::Linear>(*this, "q", s.model, s.inner(), normal(s, s.model * s.key), NoBias{});
    k = b.child<nn::Linear>(*this, "k", s.model, s.inner(), normal(s, s.model), NoBias{});
    v = b.child<nn::Linear>(*this, "v", s.model, s.inner(), normal(s, s.model), NoBias{});
    o = b.child<nn::Linear>(*this, "o", s.inner(), s.model, normal(s, s.inner()), NoBias{});
    if (kind == Kind::cross || layer > 0) return;
    relative_attention_bias =
        b.child<nn::Embedding>(*this, "relative_attention_bias", s.buckets, s.heads, normal(s, s.model));
    buckets_ = distance_buckets(s, kind == Kind::encoder).to(b.options().device());
  }

  /// Of the first block, for all of a stack's: [1, heads, queries, keys]. `seen`: tokens before the first
  /// query; may be undefined.
  at::Tensor bias(int64_t queries, int64_t keys, const at::Tensor& seen) const {
    const auto options = buckets_.options();
    auto query = at::arange(queries, options);
    if (seen.defined()) query = query + seen;
    const auto distance = at::arange(keys, options).unsqueeze(0) - query.unsqueeze(1);
    const auto place = distance.clamp(-max_distance_, max_distance_) + max_distance_;
    const auto bucket = buckets_.index_select(0, place.flatten()).view({queries, keys});
    return relative_attention_bias->forward(bucket).permute({2, 0, 1}).unsqueeze(0);
  }

  /// `mask`: what is added to the scores. `source`: the encoder's states for cross attention.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& source,
                     EncoderDecoderCache* cache) {
    const auto queries = nn::split_heads(q->forward(x), head_dim_);
    const auto [keys, values] = kind_ == Kind::cross ? of_source(source, cache) : of_own(x, cache);
    return o->forward(
        nn::attend(queries, keys, values, mask, {.scale = 1.0, .dropout = is_training() ? dropout_ : 0.0}));
  }

 private:
  std::pair<at::Tensor, at::Tensor> projected(const at::Tensor& x) const {
    return {nn::split_heads(k->forward(x), head_dim_), nn::split_heads(v->forward(x), head_dim_)};
  }
  std::pair<at::Tensor, at::Tensor> of_own(const at::Tensor& x, EncoderDecoderCache* cache) const {
    const auto [keys, values] = projected(x);
    return cache ? cache->update(layer_, keys, values) : std::pair(keys, values);
  }
  std::pair<at::Tensor, at::Tensor> of_source(const at::Tensor& source, EncoderDecoderCache* cache) const {
    if (!source.defined()) return cache->encoder(layer_);
    const auto [keys, values] = projected(source);
    if (cache) cache->keep_encoder(layer_, keys, values);
    return {keys, values};
  }

  int64_t head_dim_, layer_, max_distance_;
  Kind kind_;
  double dropout_;
  std::shared_ptr<nn::Linear> q, k, v, o;
  std::shared_ptr<nn::Embedding> relative_attention_bias;
  at::Tensor buckets_;  // follows from the config: no part of a checkpoint
};

/// One of a block's layers that attend.
class T5LayerAttention : public torch::nn::Module {
 public:
  T5LayerAttention(const nn::Build& b, const T5Sizes& s, T5Attention::Kind kind, int64_t layer)
      : dropout_(s.dropout) {
    const auto* name = kind == T5Attention::Kind::cross ? "EncDecAttention" : "SelfAttention";
    attention = b.child<T5Attention>(*this, name, s, kind, layer);
    layer_norm = b.child<T5LayerNorm>(*this, "layer_norm", s);
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& source,
                     EncoderDecoderCache* cache) {
    const auto attended = attention->forward(layer_norm->forward(x), mask, source, cache);
    return x + nn::dropout(attended, dropout_, is_training());
  }

  std::shared_ptr<T5Attention> attention;

 private:
  double dropout_;
  std::shared_ptr<T5LayerNorm> layer_norm;
};

class T5Dense : public torch::nn::Module {
 public:
  T5Dense(const nn::Build& b, const T5Sizes& s) : dropout_(s.dropout), activation_(s.activation) {
    const auto in = [&](const char* name) {
      return b.child<nn::Linear>(*this, name, s.model, s.feed_forward, normal(s, s.model), NoBias{});
    };
    wi = in(s.gated ? "wi_0" : "wi");
    if (s.gated) wi_1 = in("wi_1");
    wo = b.child<nn::Linear>(*this, "wo", s.feed_forward, s.model, normal(s, s.feed_forward), NoBias{});
  }

  at::Tensor forward(const at::Tensor& x) {
    auto y = activation_(wi->forward(x));
    if (wi_1) y = y * wi_1->forward(x);
    return wo->forward(nn::dropout(y, dropout_, is_training()).to(wo->weight.scalar_type()));
  }

 private:
  double dropout_;
  nn::Activation activation_;
  std::shared_ptr<nn::Linear> wi, wi_1, wo;
};

class T5LayerFF : public torch::nn::Module {
 public:
  T5LayerFF(const nn::Build& b, const T5Sizes& s) : dropout_(s.dropout) {
    DenseReluDense = b.child<T5Dense>(*this, "DenseReluDense", s);
    layer_norm = b.child<T5LayerNorm>(*this, "layer_norm", s);
  }

  at::Tensor forward(const at::Tensor& x) {
    return x + nn::dropout(DenseReluDense->forward(layer_norm->forward(x)), dropout_, is_training());
  }

 private:
  double dropout_;
  std::shared_ptr<T5Dense> DenseReluDense;
  std::shared_ptr<T5LayerNorm> layer_norm;
};

/// A block's layers, named as a list: self attention, in a decoder cross attention, feed forward.
class T5Layers : public torch::nn::Module {
 public:
  T5Layers(const nn::Build& b, const T5Sizes& s, bool decoder, int64_t layer) {
    using Kind = T5Attention::Kind;
    own = b.child<T5LayerAttention>(*this, "0", s, decoder ? Kind::decoder : Kind::encoder, layer);
    if (decoder) cross = b.child<T5LayerAttention>(*this, "1", s, Kind::cross, layer);
    feed_forward = b.child<T5LayerFF>(*this, decoder ? "2" : "1", s);
  }

  std::shared_ptr<T5LayerAttention> own, cross;
  std::shared_ptr<T5LayerFF> feed_forward;
};

/// What every block of one call is given beside tensors that gradients go through.
struct T5BlockInputs {
  at::Tensor cross_mask;  ///< added to the scores; may be undefined
  std::shared_ptr<EncoderDecoderCache> cache;
};

/// Scores' addend: the bias where a query may look, or zero without one.
at::Tensor additive(const at::Tensor& bias, const at::Tensor& allowed) {
  return allowed.defined() ? bias.masked_fill(allowed.logical_not(), lowest(bias.scalar_type())) : bias;
}

at::Tensor causal(int64_t queries, int64_t keys, const at::Tensor& like) {
  const auto options = like.options().dtype(at::kLong);
  return at::arange(queries, options).unsqueeze(1).ge(at::arange(keys, options).unsqueeze(0));
}

}  // namespace

class T5Block : public torch::nn::Module {
 public:
  T5Block(const nn::Build& b, const T5Sizes& s, bool decoder, int64_t index) {
    layer = b.child<T5Layers>(*this, "layer", s, decoder, index);
  }

  /// `mask`: the bias with the mask in it. `source` is undefined in an encoder.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& source,
                     const T5BlockInputs& in) {
    auto y = within_half(layer->own->forward(x, mask, {}, in.cache.get()));
    if (layer->cross) y = within_half(layer->cross->forward(y, in.cross_mask, source, in.cache.get()));
    return within_half(layer->feed_forward->forward(y));
  }

  at::Tensor bias(int64_t queries, int64_t keys, const at::Tensor& seen) const {
    return layer->own->attention->bias(queries, keys, seen);
  }

 private:
  std::shared_ptr<T5Layers> layer;
};

T5Sizes::T5Sizes(const Config& config)
    : model(aliased_size(config, "d_model", "hidden_size", 512)),
      key(aliased_size(config, "d_kv", "head_dim", 64)),
      feed_forward(config.size("d_ff", 2048)),
      heads(aliased_size(config, "num_heads", "num_attention_heads", 8)),
      encoder_layers(layer_count(config, "num_layers", layer_count(config, "num_hidden_layers", 6, 1), 1)),
      decoder_layers(layer_count(config, "num_decoder_layers", encoder_layers, 1)),
      vocab(config.size("vocab_size", 32128)),
      buckets(config.size("relative_attention_num_buckets", 32)),
      max_distance(config.size("relative_attention_max_distance", 128)),
      eps(norm_eps(config, "layer_norm_epsilon", 1e-6)),
      dropout(nn::dropout_rate(config, "dropout_rate", 0.1)),
      init_factor(config.number("initializer_factor", 1.0)) {
  const auto how = config.string("feed_forward_proj", "relu");
  const auto dash = how.find('-');
  const bool two = dash != std::string::npos;
  if (two && (how.substr(0, dash) != "gated" || how.find('-', dash + 1) != std::string::npos))
    throw ConfigError("[t5] \"feed_forward_proj\" is \"" + how +
                      "\"; it must be an activation, or \"gated-\" and one");
  gated = config.boolean("is_gated_act", two);
  const auto named = how == "gated-gelu" ? "gelu_new" : two ? how.substr(dash + 1) : how;
  activation = nn::activation(config.string("dense_act_fn", named), "dense_act_fn");
  // A decoder has all buckets for the past, half of them for single distances.
  if (buckets < 4 || max_distance <= buckets / 2)
    throw ConfigError("[t5] \"relative_attention_num_buckets\" (" + std::to_string(buckets) +
                      ") must be at least 4 and \"relative_attention_max_distance\" (" +
                      std::to_string(max_distance) + ") more than half of it");
  if (config.boolean("is_decoder", false))
    throw ConfigError("[t5] \"is_decoder\" is true: a decoder without an encoder is not supported");
  if (config.boolean("add_cross_attention", false))
    throw ConfigError("[t5] \"add_cross_attention\" is not supported");
  if (config.has("quantization_config"))
    throw ConfigError(
        "[t5] \"quantization_config\" is set: quantised checkpoints are not supported yet; save a "
        "dequantised one");
  // Of the classifier head; how many positions it was trained on; whether there is a decoder, which the class
  // says; and whether the output is scaled.
  config.acknowledge(
      {"classifier_dropout", "n_positions", "output_past", "is_encoder_decoder", "scale_decoder_outputs"});
}

T5Stack::~T5Stack() = default;

T5Stack::T5Stack(const nn::Build& b, const T5Sizes& s, bool decoder, const at::Tensor& table)
    : decoder_(decoder), dropout_(s.dropout) {
  embed_tokens = b.child<nn::Embedding>(*this, "embed_tokens", table);
  block = b.child<nn::List<T5Block>>(
      *this, "block", decoder ? s.decoder_layers : s.encoder_layers,
      [&](const nn::Build& at, int64_t i) { return std::make_shared<T5Block>(at, s, decoder, i); });
  final_layer_norm = b.child<T5LayerNorm>(*this, "final_layer_norm", s);
}

at::Tensor T5Stack::forward(const at::Tensor& tokens, const T5StackInputs& in) {
  const int64_t batch = tokens.size(0), queries = tokens.size(1);
  const nn::MaskRequest request{.like = tokens, .attention_mask = in.mask, .cache = in.cache.get()};
  auto allowed = decoder_ ? nn::causal_mask(request) : nn::bidirectional_mask(request);
  const int64_t keys = in.cache ? in.cache->attended_length(queries) : queries;
  if (decoder_ && !allowed.defined() && queries > 1) allowed = causal(queries, keys, tokens);
  const auto seen = in.cache ? in.cache->seen_tensor(tokens.device()) : at::Tensor();
  // The same in every block. SDPA wants it for each row of the batch.
  const auto mask = additive((*block)[0].bias(queries, keys, seen), allowed).expand({batch, -1, -1, -1});

  T5BlockInputs common{.cache = in.cache};
  if (decoder_ && in.encoder_mask.defined()) {
    const auto width = in.encoder_mask.size(1);
    const auto may = in.encoder_mask.to(tokens.device()).to(at::kBool).view({batch, 1, 1, width});
    common.cross_mask =
        additive(at::zeros({1, 1, 1, 1}, mask.options()).expand({batch, 1, queries, width}), may);
  }

  auto x = nn::dropout(tokens, dropout_, is_training());
  for (const auto& each : *block)
    x = nn::with_weights(*each, x, [&](const at::Tensor& h) {
      if (!in.recompute) return each->forward(h, mask, in.encoder_states, common);
      std::vector<at::Tensor> inputs{h, mask};
      if (in.encoder_states.defined()) inputs.push_back(in.encoder_states);
      return nn::checkpointed(
          *each,
          [each, common](at::TensorList given) {
            return each->forward(given[0], given[1], given.size() > 2 ? given[2] : at::Tensor(), common);
          },
          inputs);
    });
  if (in.cache) in.cache->advance(queries);
  return nn::dropout(final_layer_norm->forward(x), dropout_, is_training());
}

}  // namespace graft
