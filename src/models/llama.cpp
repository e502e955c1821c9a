#include "models/llama.h"

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

struct LlamaSizes {
  int64_t hidden, intermediate, heads, kv_heads, head_dim, layers, vocab, padding_idx;
  double eps, attention_dropout;
  bool attention_bias, mlp_bias;
  nn::Activation activation;

  explicit LlamaSizes(const Config& config)
      : hidden(config.size("hidden_size", 4096)),
        intermediate(config.size("intermediate_size", 11008)),
        heads(config.size("num_attention_heads", 32)),
        kv_heads(config.size("num_key_value_heads", heads)),
        head_dim(config.size("head_dim", hidden / heads)),
        layers(config.size("num_hidden_layers", 32, 0)),
        vocab(config.size("vocab_size", 32000)),
        padding_idx(padding_row(pad_token(config, {}), vocab)),
        eps(config.number("rms_norm_eps", 1e-6)),
        attention_dropout(config.number("attention_dropout", 0.0)),
        attention_bias(config.boolean("attention_bias", false)),
        mlp_bias(config.boolean("mlp_bias", false)),
        activation(nn::activation(config.string("hidden_act", "silu"))) {
    check_common_config(config);
    if (heads % kv_heads != 0)
      throw ConfigError("[llama] \"num_key_value_heads\" (" + std::to_string(kv_heads) +
                        ") does not divide \"num_attention_heads\" (" + std::to_string(heads) + ")");
  }
};

/// What every layer of one call is given.
struct LayerInputs {
  at::Tensor mask;
  nn::Rotation rotation;
  std::shared_ptr<KVCache> cache;
};

class LlamaAttention : public torch::nn::Module {
 public:
  LlamaAttention(const nn::Build& b, const LlamaSizes& s, int64_t layer)
      : head_dim_(s.head_dim), layer_(layer), dropout_(s.attention_dropout) {
    q_proj = b.child<nn::Linear>(*this, "q_proj", s.hidden, s.heads * s.head_dim, s.attention_bias);
    k_proj = b.child<nn::Linear>(*this, "k_proj", s.hidden, s.kv_heads * s.head_dim, s.attention_bias);
    v_proj = b.child<nn::Linear>(*this, "v_proj", s.hidden, s.kv_heads * s.head_dim, s.attention_bias);
    o_proj = b.child<nn::Linear>(*this, "o_proj", s.heads * s.head_dim, s.hidden, s.attention_bias);
  }

  at::Tensor forward(const at::Tensor& x, const LayerInputs& in) {
    const auto q = nn::rotate(nn::split_heads(q_proj->forward(x), head_dim_), in.rotation);
    auto k = nn::rotate(nn::split_heads(k_proj->forward(x), head_dim_), in.rotation);
    auto v = nn::split_heads(v_proj->forward(x), head_dim_);
    if (in.cache) std::tie(k, v) = in.cache->update(layer_, k, v);
    const nn::AttentionOptions options{.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_)),
                                       .causal = true,
                                       .dropout = is_training() ? dropout_ : 0.0};
    return o_proj->forward(nn::attend(q, k, v, in.mask, options));
  }

 private:
  int64_t head_dim_, layer_;
  double dropout_;
  std::shared_ptr<nn::Linear> q_proj, k_proj, v_proj, o_proj;
};

class LlamaMLP : public torch::nn::Module {
 public:
  LlamaMLP(const nn::Build& b, const LlamaSizes& s) : activation_(s.activation) {
    gate_proj = b.child<nn::Linear>(*this, "gate_proj", s.hidden, s.intermediate, s.mlp_bias);
    up_proj = b.child<nn::Linear>(*this, "up_proj", s.hidden, s.intermediate, s.mlp_bias);
    down_proj = b.child<nn::Linear>(*this, "down_proj", s.intermediate, s.hidden, s.mlp_bias);
  }

  at::Tensor forward(const at::Tensor& x) {
    return down_proj->forward(activation_(gate_proj->forward(x)) * up_proj->forward(x));
  }

 private:
  nn::Activation activation_;
  std::shared_ptr<nn::Linear> gate_proj, up_proj, down_proj;
};

class LlamaDecoderLayer : public torch::nn::Module {
 public:
  LlamaDecoderLayer(const nn::Build& b, const LlamaSizes& s, int64_t layer) {
    self_attn = b.child<LlamaAttention>(*this, "self_attn", s, layer);
    mlp = b.child<LlamaMLP>(*this, "mlp", s);
    input_layernorm = b.child<nn::RMSNorm>(*this, "input_layernorm", s.hidden, s.eps);
    post_attention_layernorm = b.child<nn::RMSNorm>(*this, "post_attention_layernorm", s.hidden, s.eps);
  }

  at::Tensor forward(const at::Tensor& x, const LayerInputs& in) {
    const auto attended = x + self_attn->forward(input_layernorm->forward(x), in);
    return attended + mlp->forward(post_attention_layernorm->forward(attended));
  }

 private:
  std::shared_ptr<LlamaAttention> self_attn;
  std::shared_ptr<LlamaMLP> mlp;
  std::shared_ptr<nn::RMSNorm> input_layernorm, post_attention_layernorm;
};

class LlamaModel : public PreTrainedModel {
 public:
  static constexpr const char* kPrefix = "model";
  static constexpr bool kTiesByDefault = false;

  LlamaModel(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    const LlamaSizes s(config);
    embed_tokens = b.child<nn::Embedding>(*this, "embed_tokens", s.vocab, s.hidden, s.padding_idx);
    layers = b.child<nn::List<LlamaDecoderLayer>>(
        *this, "layers", s.layers,
        [&](const nn::Build& at, int64_t i) { return std::make_shared<LlamaDecoderLayer>(at, s, i); });
    norm = b.child<nn::RMSNorm>(*this, "norm", s.hidden, s.eps);
    rotary_emb = std::make_shared<nn::RotaryEmbedding>(b / "rotary_emb", config, s.head_dim);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "Llama", {"input_ids"}, {"attention_mask", "position_ids", "past_key_values"});
    auto x = embedded(*this, inputs);
    const bool recompute = checkpointing_ && is_training();
    const auto cache = cache_for_layers(inputs, recompute);
    const LayerInputs in{
        .mask = nn::causal_mask({x, inputs.attention_mask, cache.get(), packed_positions(config(), inputs)}),
        .rotation = rotary_emb->forward(x, positions_or_default(inputs, x)),
        .cache = cache};
    for (const auto& layer : *layers)
      x = recompute ? nn::checkpointed(
                          *layer, [layer, in](const at::Tensor& h) { return layer->forward(h, in); }, x)
                    : layer->forward(x, in);
    if (cache) cache->advance(x.size(1));
    return {.last_hidden_state = norm->forward(x)};
  }

  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return embed_tokens->forward(input_ids);
  }

  void set_checkpointing(bool on) override { checkpointing_ = on; }
  at::Tensor token_table() const { return embed_tokens->weight; }
  std::optional<int64_t> pad_token_id() const { return config().optional_integer("pad_token_id"); }

 private:
  bool checkpointing_ = false;
  std::shared_ptr<nn::Embedding> embed_tokens;
  std::shared_ptr<nn::List<LlamaDecoderLayer>> layers;
  std::shared_ptr<nn::RMSNorm> norm;
  std::shared_ptr<nn::RotaryEmbedding> rotary_emb;
};

}  // namespace

std::vector<Architecture> llama_architectures() {
  const auto row = [](std::string_view name, Task task, auto make) {
    return Architecture{.name = name,
                        .model_type = "llama",
                        .task = task,
                        .base_prefix = LlamaModel::kPrefix,
                        .make = make,
                        .ties_by_default = LlamaModel::kTiesByDefault,
                        .obsolete = {"rotary_emb.inv_freq"}};
  };
  auto causal = row("LlamaForCausalLM", Task::causal_lm, make_model<CausalLM<LlamaModel>>);
  causal.tied = {{"lm_head.weight", "model.embed_tokens.weight"}};
  return {row("LlamaModel", Task::base, make_model<LlamaModel>), causal,
          row("LlamaForSequenceClassification", Task::sequence_classification,
              make_model<SequenceClassifier<LlamaModel>>)};
}

}  // namespace graft
