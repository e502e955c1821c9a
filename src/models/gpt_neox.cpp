#include "models/gpt_neox.h"

#include <cmath>

#include "graft/error.h"
#include "models/decoder_heads.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "nn/embedding.h"
#include "nn/mask.h"
#include "nn/norm.h"
#include "nn/rope.h"

namespace graft {
namespace {

struct NeoXSizes {
  int64_t hidden, intermediate, heads, layers, vocab;
  double eps, attention_dropout, hidden_dropout;
  bool attention_bias, parallel;
  nn::Activation activation;

  explicit NeoXSizes(const Config& config)
      : hidden(config.size("hidden_size", 6144)),
        intermediate(config.size("intermediate_size", 24576)),
        heads(config.size("num_attention_heads", 64)),
        layers(layer_count(config, "num_hidden_layers", 44)),
        vocab(config.size("vocab_size", 50432)),
        eps(norm_eps(config, "layer_norm_eps", 1e-5)),
        attention_dropout(nn::dropout_rate(config, "attention_dropout", 0.0)),
        hidden_dropout(nn::dropout_rate(config, "hidden_dropout", 0.0)),
        attention_bias(config.boolean("attention_bias", true)),
        parallel(config.boolean("use_parallel_residual", true)),
        activation(nn::activation(config.string("hidden_act", "gelu"))) {
    check_common_config(config);
    config.acknowledge({"classifier_dropout"});  // the token classifier's
    if (hidden % heads != 0)
      throw ConfigError("[gpt_neox] \"num_attention_heads\" (" + std::to_string(heads) +
                        ") does not divide \"hidden_size\" (" + std::to_string(hidden) + ")");
  }
};

/// What every layer of one call is given.
struct LayerInputs {
  at::Tensor mask;
  nn::Rotation rotation;
  std::shared_ptr<KVCache> cache;
};

class NeoXAttention : public torch::nn::Module {
 public:
  NeoXAttention(const nn::Build& b, const NeoXSizes& s, int64_t layer)
      : head_dim_(s.hidden / s.heads), layer_(layer), dropout_(s.attention_dropout) {
    query_key_value = b.child<nn::Linear>(*this, "query_key_value", s.hidden, 3 * s.hidden, s.attention_bias);
    dense = b.child<nn::Linear>(*this, "dense", s.hidden, s.hidden, s.attention_bias);
  }

  at::Tensor forward(const at::Tensor& x, const LayerInputs& in) {
    // A head's query, key and value are neighbours.
    const auto qkv = nn::split_heads(query_key_value->forward(x), 3 * head_dim_).chunk(3, -1);
    const auto q = nn::rotate(qkv[0], in.rotation);
    auto k = nn::rotate(qkv[1], in.rotation), v = qkv[2];
    if (in.cache) std::tie(k, v) = in.cache->update(layer_, k, v);
    const nn::AttentionOptions options{.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_)),
                                       .causal = true,
                                       .dropout = is_training() ? dropout_ : 0.0};
    return dense->forward(nn::attend(q, k, v, in.mask, options));
  }

 private:
  int64_t head_dim_, layer_;
  double dropout_;
  std::shared_ptr<nn::Linear> query_key_value, dense;
};

class NeoXMLP : public torch::nn::Module {
 public:
  NeoXMLP(const nn::Build& b, const NeoXSizes& s) : activation_(s.activation) {
    dense_h_to_4h = b.child<nn::Linear>(*this, "dense_h_to_4h", s.hidden, s.intermediate);
    dense_4h_to_h = b.child<nn::Linear>(*this, "dense_4h_to_h", s.intermediate, s.hidden);
  }

  at::Tensor forward(const at::Tensor& x) {
    return dense_4h_to_h->forward(activation_(dense_h_to_4h->forward(x)));
  }

 private:
  nn::Activation activation_;
  std::shared_ptr<nn::Linear> dense_h_to_4h, dense_4h_to_h;
};

class NeoXLayer : public torch::nn::Module {
 public:
  NeoXLayer(const nn::Build& b, const NeoXSizes& s, int64_t layer)
      : parallel_(s.parallel), dropout_(s.hidden_dropout) {
    input_layernorm = b.child<nn::LayerNorm>(*this, "input_layernorm", s.hidden, s.eps);
    post_attention_layernorm = b.child<nn::LayerNorm>(*this, "post_attention_layernorm", s.hidden, s.eps);
    attention = b.child<NeoXAttention>(*this, "attention", s, layer);
    mlp = b.child<NeoXMLP>(*this, "mlp", s);
  }

  at::Tensor forward(const at::Tensor& x, const LayerInputs& in) {
    const auto dropped = [&](const at::Tensor& y) { return nn::dropout(y, dropout_, is_training()); };
    const auto attended = dropped(attention->forward(input_layernorm->forward(x), in));
    if (parallel_) return dropped(mlp->forward(post_attention_layernorm->forward(x))) + attended + x;
    const auto sum = attended + x;
    return dropped(mlp->forward(post_attention_layernorm->forward(sum))) + sum;
  }

 private:
  bool parallel_;
  double dropout_;
  std::shared_ptr<nn::LayerNorm> input_layernorm, post_attention_layernorm;
  std::shared_ptr<NeoXAttention> attention;
  std::shared_ptr<NeoXMLP> mlp;
};

class NeoXModel : public PreTrainedModel {
 public:
  static constexpr const char* kPrefix = "gpt_neox";
  static constexpr const char* kTokenTable = "gpt_neox.embed_in.weight";
  static constexpr bool kTiesByDefault = false;
  static TokenHead token_head(const Config& config) {
    return {.name = "classifier", .dropout = nn::dropout_rate(config, "classifier_dropout", 0.1)};
  }

  NeoXModel(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    const NeoXSizes s(config);
    dropout_ = s.hidden_dropout;
    embed_in = b.child<nn::Embedding>(*this, "embed_in", s.vocab, s.hidden);
    layers = b.child<nn::List<NeoXLayer>>(*this, "layers", s.layers, [&](const nn::Build& at, int64_t i) {
      return std::make_shared<NeoXLayer>(at, s, i);
    });
    final_layer_norm = b.child<nn::LayerNorm>(*this, "final_layer_norm", s.hidden, s.eps);
    const nn::RopeDefaults rope{
        .partial_factor = 0.25, .theta_key = "rotary_emb_base", .partial_key = "rotary_pct"};
    rotary_emb = std::make_shared<nn::RotaryEmbedding>(b / "rotary_emb", config, s.hidden / s.heads, rope);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "gpt_neox", {"input_ids"}, {"attention_mask", "position_ids", "past_key_values"});
    const auto tokens = embedded(*this, inputs);
    const bool recompute = checkpointing_ && is_training();
    const auto cache = cache_for_layers(inputs, recompute);
    const LayerInputs in{.mask = nn::causal_mask({tokens, inputs.attention_mask, cache.get(),
                                                  packed_positions(config(), inputs)}),
                         .rotation = rotary_emb->forward(tokens, positions_or_default(inputs, tokens)),
                         .cache = cache};
    auto x = nn::dropout(tokens, dropout_, is_training());
    x = nn::through(*layers, std::move(x), recompute, in);
    if (cache) cache->advance(x.size(1));
    return {.last_hidden_state = final_layer_norm->forward(x)};
  }

  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return embed_in->forward(input_ids);
  }

  std::optional<int64_t> rotation_limit() const override { return rotary_emb->rotation_limit(); }
  void set_checkpointing(bool on) override { checkpointing_ = on; }
  at::Tensor token_table() const { return embed_in->weight; }
  std::optional<int64_t> pad_token_id() const { return config().optional_integer("pad_token_id"); }

 private:
  double dropout_ = 0;
  bool checkpointing_ = false;
  std::shared_ptr<nn::Embedding> embed_in;
  std::shared_ptr<nn::List<NeoXLayer>> layers;
  std::shared_ptr<nn::LayerNorm> final_layer_norm;
  std::shared_ptr<nn::RotaryEmbedding> rotary_emb;
};

}  // namespace

std::vector<Architecture> gpt_neox_architectures() {
  auto rows =
      decoder_architectures<NeoXModel>({"gpt_neox", "GPTNeoXModel", "GPTNeoXForCausalLM",
                                        "GPTNeoXForSequenceClassification", "GPTNeoXForTokenClassification"},
                                       {"rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"});
  for (auto& row : rows)
    if (row.task == Task::causal_lm) row.stored_as = {{"lm_head", "embed_out"}};
  return rows;
}

}  // namespace graft
