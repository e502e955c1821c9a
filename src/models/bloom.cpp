#include "models/bloom.h"

#include <cmath>

#include "graft/error.h"
#include "models/decoder_heads.h"
#include "nn/activation.h"
#include "nn/alibi.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "nn/embedding.h"
#include "nn/norm.h"

namespace graft {
namespace {

struct BloomSizes {
  int64_t hidden, heads, layers, vocab;
  double eps, hidden_dropout, attention_dropout;
  bool residual_after_norm;

  explicit BloomSizes(const Config& config)
      : hidden(config.size("n_embed", config.size("hidden_size", 64))),
        heads(config.size("n_head", config.size("num_attention_heads", 8))),
        layers(layer_count(config, "n_layer", layer_count(config, "num_hidden_layers", 2))),
        vocab(config.size("vocab_size", 250880)),
        eps(norm_eps(config, "layer_norm_epsilon", 1e-5)),
        hidden_dropout(nn::dropout_rate(config, "hidden_dropout", 0.0)),
        attention_dropout(nn::dropout_rate(config, "attention_dropout", 0.0)),
        residual_after_norm(config.boolean("apply_residual_connection_post_layernorm", false)) {
    check_common_config(config);
    if (config.boolean("slow_but_exact", false) && config.integer("pretraining_tp", 1) > 1)
      throw ConfigError("[bloom] \"slow_but_exact\" is not supported: transformers then leaves out biases");
    // Megatron's, in the released files.
    config.acknowledge({"attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion",
                        "offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv"});
    if (hidden % heads != 0)
      throw ConfigError("[bloom] \"n_head\" (" + std::to_string(heads) +
                        ") does not divide \"hidden_size\" (" + std::to_string(hidden) + ")");
  }
};

/// What every block of one call is given.
struct BlockInputs {
  at::Tensor bias;  ///< alibi, and the mask
  std::shared_ptr<KVCache> cache;
};

class BloomAttention : public torch::nn::Module {
 public:
  BloomAttention(const nn::Build& b, const BloomSizes& s, int64_t layer)
      : head_dim_(s.hidden / s.heads), layer_(layer), dropout_(s.attention_dropout) {
    query_key_value = b.child<nn::Linear>(*this, "query_key_value", s.hidden, 3 * s.hidden);
    dense = b.child<nn::Linear>(*this, "dense", s.hidden, s.hidden);
  }

  at::Tensor forward(const at::Tensor& x, const BlockInputs& in) {
    // A head's query, key and value are neighbours.
    const auto qkv = nn::split_heads(query_key_value->forward(x), 3 * head_dim_).chunk(3, -1);
    auto k = qkv[1], v = qkv[2];
    if (in.cache) std::tie(k, v) = in.cache->update(layer_, k, v);
    const nn::AttentionOptions options{.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_)),
                                       .causal = true,
                                       .dropout = is_training() ? dropout_ : 0.0,
                                       .plain = true};
    return dense->forward(nn::attend(qkv[0], k, v, in.bias, options));
  }

 private:
  int64_t head_dim_, layer_;
  double dropout_;
  std::shared_ptr<nn::Linear> query_key_value, dense;
};

class BloomMLP : public torch::nn::Module {
 public:
  BloomMLP(const nn::Build& b, const BloomSizes& s) {
    dense_h_to_4h = b.child<nn::Linear>(*this, "dense_h_to_4h", s.hidden, 4 * s.hidden);
    dense_4h_to_h = b.child<nn::Linear>(*this, "dense_4h_to_h", 4 * s.hidden, s.hidden);
  }

  at::Tensor forward(const at::Tensor& x) {
    return dense_4h_to_h->forward(nn::activation("gelu_fast")(dense_h_to_4h->forward(x)));
  }

 private:
  std::shared_ptr<nn::Linear> dense_h_to_4h, dense_4h_to_h;
};

class BloomBlock : public torch::nn::Module {
 public:
  BloomBlock(const nn::Build& b, const BloomSizes& s, int64_t layer)
      : dropout_(s.hidden_dropout), residual_after_norm_(s.residual_after_norm) {
    input_layernorm = b.child<nn::LayerNorm>(*this, "input_layernorm", s.hidden, s.eps);
    self_attention = b.child<BloomAttention>(*this, "self_attention", s, layer);
    post_attention_layernorm = b.child<nn::LayerNorm>(*this, "post_attention_layernorm", s.hidden, s.eps);
    mlp = b.child<BloomMLP>(*this, "mlp", s);
  }

  at::Tensor forward(const at::Tensor& x, const BlockInputs& in) {
    const auto dropped = [&](const at::Tensor& y) { return nn::dropout(y, dropout_, is_training()); };
    const auto normed = input_layernorm->forward(x);
    const auto attended = (residual_after_norm_ ? normed : x) + dropped(self_attention->forward(normed, in));
    const auto again = post_attention_layernorm->forward(attended);
    return (residual_after_norm_ ? again : attended) + dropped(mlp->forward(again));
  }

 private:
  double dropout_;
  bool residual_after_norm_;
  std::shared_ptr<nn::LayerNorm> input_layernorm, post_attention_layernorm;
  std::shared_ptr<BloomAttention> self_attention;
  std::shared_ptr<BloomMLP> mlp;
};

class BloomModel : public PreTrainedModel {
 public:
  static constexpr const char* kPrefix = "transformer";
  static constexpr const char* kTokenTable = "transformer.word_embeddings.weight";
  static constexpr bool kTiesByDefault = true;
  static TokenHead token_head(const Config& config) {
    const bool own = config.has("classifier_dropout");
    return {.name = "classifier",
            .dropout = nn::dropout_rate(config, own ? "classifier_dropout" : "hidden_dropout", 0.0)};
  }

  BloomModel(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    const BloomSizes s(config);
    heads_ = s.heads;
    word_embeddings = b.child<nn::Embedding>(*this, "word_embeddings", s.vocab, s.hidden);
    word_embeddings_layernorm = b.child<nn::LayerNorm>(*this, "word_embeddings_layernorm", s.hidden, s.eps);
    h = b.child<nn::List<BloomBlock>>(*this, "h", s.layers, [&](const nn::Build& at, int64_t i) {
      return std::make_shared<BloomBlock>(at, s, i);
    });
    ln_f = b.child<nn::LayerNorm>(*this, "ln_f", s.hidden, s.eps);
  }

  /// position_ids are taken and not looked at, as in transformers: a key's position is counted over
  /// attention_mask.
  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "bloom", {"input_ids"}, {"attention_mask", "position_ids", "past_key_values"});
    const auto tokens = embedded(*this, inputs);
    const bool recompute = checkpointing_ && is_training();
    const auto cache = cache_for_layers(inputs, recompute);
    const nn::MaskRequest request{tokens, inputs.attention_mask, cache.get()};
    const auto slopes = nn::alibi_slopes(heads_, tokens.device()).view({1, heads_, 1, 1});
    const auto alibi = (slopes * nn::key_positions(request)).to(tokens.scalar_type());
    const BlockInputs in{.bias = nn::masked_bias(alibi, request), .cache = cache};
    auto x = word_embeddings_layernorm->forward(tokens);
    x = nn::through(*h, std::move(x), recompute, in);
    if (cache) cache->advance(x.size(1));
    return {.last_hidden_state = ln_f->forward(x)};
  }

  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return word_embeddings->forward(input_ids);
  }

  void set_checkpointing(bool on) override { checkpointing_ = on; }
  at::Tensor token_table() const { return word_embeddings->weight; }
  std::optional<int64_t> pad_token_id() const { return config().optional_integer("pad_token_id"); }

 private:
  int64_t heads_ = 0;
  bool checkpointing_ = false;
  std::shared_ptr<nn::Embedding> word_embeddings;
  std::shared_ptr<nn::LayerNorm> word_embeddings_layernorm, ln_f;
  std::shared_ptr<nn::List<BloomBlock>> h;
};

}  // namespace

std::vector<Architecture> bloom_architectures() {
  return decoder_architectures<BloomModel>({"bloom", "BloomModel", "BloomForCausalLM",
                                            "BloomForSequenceClassification", "BloomForTokenClassification"},
                                           {});
}

}  // namespace graft
