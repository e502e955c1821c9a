#include "models/falcon.h"

#include <cmath>

#include "graft/error.h"
#include "models/decoder_heads.h"
#include "nn/activation.h"
#include "nn/alibi.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "nn/embedding.h"
#include "nn/norm.h"
#include "nn/rope.h"

namespace graft {
namespace {

/// How a layer's two blocks stand to each other.
enum class Order { sequential, parallel, parallel_two_norms };

struct FalconSizes {
  int64_t hidden, heads, kv_heads, layers, vocab, ffn;
  double eps, hidden_dropout, attention_dropout;
  bool bias, alibi;
  Order order;
  nn::Activation activation;

  explicit FalconSizes(const Config& config)
      : hidden(config.size("n_embed", config.size("hidden_size", 4544))),
        heads(config.size("num_attention_heads", 71)),
        kv_heads(config.size("num_kv_heads", heads)),
        layers(layer_count(config, "num_hidden_layers", 32)),
        vocab(config.size("vocab_size", 65024)),
        ffn(config.size("ffn_hidden_size", 4 * hidden)),
        eps(norm_eps(config, "layer_norm_epsilon", 1e-5)),
        hidden_dropout(nn::dropout_rate(config, "hidden_dropout", 0.0)),
        attention_dropout(nn::dropout_rate(config, "attention_dropout", 0.0)),
        bias(config.boolean("bias", false)),
        alibi(config.boolean("alibi", false)),
        activation(nn::activation(config.string("activation", "gelu"), "activation")) {
    check_common_config(config);
    config.acknowledge({"apply_residual_connection_post_layernorm"});  // Bloom's, in files as old
    const bool grouped = config.boolean("new_decoder_architecture", false);
    order = read_order(config, grouped);
    const bool multi_query = config.boolean("multi_query", true);
    if (!grouped && multi_query) kv_heads = 1;
    if (!grouped && !multi_query && kv_heads != heads)
      refuse("\"num_kv_heads\" (" + std::to_string(kv_heads) + ") differs from \"num_attention_heads\" (" +
             std::to_string(heads) + "), which needs \"new_decoder_architecture\"");
    if (hidden % heads != 0)
      refuse("\"num_attention_heads\" (" + std::to_string(heads) + ") does not divide \"hidden_size\" (" +
             std::to_string(hidden) + ")");
    if (heads % kv_heads != 0)
      refuse("\"num_kv_heads\" (" + std::to_string(kv_heads) + ") does not divide \"num_attention_heads\" (" +
             std::to_string(heads) + ")");
  }

  int64_t head_dim() const { return hidden / heads; }

 private:
  [[noreturn]] static void refuse(const std::string& what) { throw ConfigError("[falcon] " + what); }

  static Order read_order(const Config& config, bool grouped) {
    const bool parallel = config.boolean("parallel_attn", true);
    const int64_t norms = config.size("num_ln_in_parallel_attn", grouped ? 2 : 1);
    if (grouped && !parallel)
      refuse("\"parallel_attn\" is false with \"new_decoder_architecture\", which has no such form");
    if (norms > 2 || (norms == 2 && !grouped && parallel))
      refuse("\"num_ln_in_parallel_attn\" is " + std::to_string(norms) +
             (grouped ? "; known: 1, 2" : "; without \"new_decoder_architecture\" there is one"));
    if (!parallel) return Order::sequential;
    return grouped && norms == 2 ? Order::parallel_two_norms : Order::parallel;
  }
};

/// What every layer of one call is given.
struct LayerInputs {
  at::Tensor mask;  ///< boolean, or the biases
  nn::Rotation rotation;
  std::shared_ptr<KVCache> cache;
};

class FalconAttention : public torch::nn::Module {
 public:
  FalconAttention(const nn::Build& b, const FalconSizes& s, int64_t layer)
      : head_dim_(s.head_dim()),
        heads_(s.heads),
        groups_(s.kv_heads),
        layer_(layer),
        alibi_(s.alibi),
        dropout_(s.attention_dropout) {
    query_key_value =
        b.child<nn::Linear>(*this, "query_key_value", s.hidden, (heads_ + 2 * groups_) * head_dim_, s.bias);
    dense = b.child<nn::Linear>(*this, "dense", s.hidden, s.hidden, s.bias);
  }

  at::Tensor forward(const at::Tensor& x, const LayerInputs& in) {
    // Groups of queries, each with its key and value behind it: [batch, seq, group, queries + 2, dim].
    const int64_t batch = x.size(0), seq = x.size(1), queries = heads_ / groups_;
    const auto fused = query_key_value->forward(x)
                           .view({batch, seq, groups_, queries + 2, head_dim_})
                           .split({queries, 1, 1}, 3);
    const auto heads = [&](const at::Tensor& y, int64_t count) {
      return y.reshape({batch, seq, count, head_dim_}).transpose(1, 2);
    };
    auto q = heads(fused[0], heads_), k = heads(fused[1], groups_), v = heads(fused[2], groups_);
    if (!alibi_) {
      q = nn::rotate(q, in.rotation);
      k = nn::rotate(k, in.rotation);
    }
    if (in.cache) std::tie(k, v) = in.cache->update(layer_, k, v);
    // With rotary positions transformers drops no scores, whatever the config says.
    const nn::AttentionOptions options{.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_)),
                                       .causal = true,
                                       .dropout = alibi_ && is_training() ? dropout_ : 0.0};
    return dense->forward(nn::attend(q, k, v, in.mask, options));
  }

 private:
  int64_t head_dim_, heads_, groups_, layer_;
  bool alibi_;
  double dropout_;
  std::shared_ptr<nn::Linear> query_key_value, dense;
};

class FalconMLP : public torch::nn::Module {
 public:
  FalconMLP(const nn::Build& b, const FalconSizes& s) : activation_(s.activation) {
    dense_h_to_4h = b.child<nn::Linear>(*this, "dense_h_to_4h", s.hidden, s.ffn, s.bias);
    dense_4h_to_h = b.child<nn::Linear>(*this, "dense_4h_to_h", s.ffn, s.hidden, s.bias);
  }

  at::Tensor forward(const at::Tensor& x) {
    return dense_4h_to_h->forward(activation_(dense_h_to_4h->forward(x)));
  }

 private:
  nn::Activation activation_;
  std::shared_ptr<nn::Linear> dense_h_to_4h, dense_4h_to_h;
};

class FalconDecoderLayer : public torch::nn::Module {
 public:
  FalconDecoderLayer(const nn::Build& b, const FalconSizes& s, int64_t layer)
      : order_(s.order), hidden_dropout_(s.hidden_dropout), attention_dropout_(s.attention_dropout) {
    const auto norm = [&](const char* name) { return b.child<nn::LayerNorm>(*this, name, s.hidden, s.eps); };
    self_attention = b.child<FalconAttention>(*this, "self_attention", s, layer);
    mlp = b.child<FalconMLP>(*this, "mlp", s);
    const bool two = order_ == Order::parallel_two_norms;
    before_attention_ = norm(two ? "ln_attn" : "input_layernorm");
    if (two) before_mlp_ = norm("ln_mlp");
    if (order_ == Order::sequential) before_mlp_ = norm("post_attention_layernorm");
  }

  at::Tensor forward(const at::Tensor& x, const LayerInputs& in) {
    const auto normed = before_attention_->forward(x);
    const auto attended = self_attention->forward(normed, in);
    if (order_ == Order::sequential) {
      const auto sum = x + nn::dropout(attended, attention_dropout_, is_training());
      return sum + dropped(mlp->forward(before_mlp_->forward(sum)));
    }
    return x + dropped(mlp->forward(before_mlp_ ? before_mlp_->forward(x) : normed) + attended);
  }

 private:
  at::Tensor dropped(const at::Tensor& y) const { return nn::dropout(y, hidden_dropout_, is_training()); }

  Order order_;
  double hidden_dropout_, attention_dropout_;
  std::shared_ptr<FalconAttention> self_attention;
  std::shared_ptr<FalconMLP> mlp;
  std::shared_ptr<nn::LayerNorm> before_attention_, before_mlp_;
};

class FalconModel : public PreTrainedModel {
 public:
  static constexpr const char* kPrefix = "transformer";
  static constexpr const char* kTokenTable = "transformer.word_embeddings.weight";
  static constexpr bool kTiesByDefault = true;
  static TokenHead token_head(const Config& config) {
    const bool own = config.has("classifier_dropout");
    return {.name = "classifier",
            .dropout = nn::dropout_rate(config, own ? "classifier_dropout" : "hidden_dropout", 0.0)};
  }

  FalconModel(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    const FalconSizes s(config);
    alibi_heads_ = s.alibi ? s.heads : 0;
    head_dim_ = s.head_dim();
    word_embeddings = b.child<nn::Embedding>(*this, "word_embeddings", s.vocab, s.hidden);
    h = b.child<nn::List<FalconDecoderLayer>>(*this, "h", s.layers, [&](const nn::Build& at, int64_t i) {
      return std::make_shared<FalconDecoderLayer>(at, s, i);
    });
    ln_f = b.child<nn::LayerNorm>(*this, "ln_f", s.hidden, s.eps);
    if (s.alibi)
      config.acknowledge({"rope_parameters", "rope_scaling", "rope_theta", "max_position_embeddings"});
    else
      rotary_emb = std::make_shared<nn::RotaryEmbedding>(b / "rotary_emb", config, head_dim_);
  }

  /// With linear biases position_ids are taken and not looked at, as in transformers: a key's position is
  /// counted over attention_mask.
  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "falcon", {"input_ids"}, {"attention_mask", "position_ids", "past_key_values"});
    auto x = embedded(*this, inputs);
    const bool recompute = checkpointing_ && is_training();
    const auto cache = cache_for_layers(inputs, recompute);
    // No position_ids in here: Falcon has no packed sequences.
    const nn::MaskRequest request{x, inputs.attention_mask, cache.get()};
    LayerInputs in{.cache = cache};
    if (rotary_emb) {
      in.mask = nn::causal_mask(request);
      in.rotation = rotary_emb->forward(x, positions_or_default(inputs, x));
    } else {
      in.mask = nn::masked_bias(alibi(request), request);
    }
    x = nn::through(*h, std::move(x), recompute, in);
    if (cache) cache->advance(x.size(1));
    return {.last_hidden_state = ln_f->forward(x)};
  }

  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return word_embeddings->forward(input_ids);
  }

  std::optional<int64_t> rotation_limit() const override {
    return rotary_emb ? rotary_emb->rotation_limit() : std::nullopt;
  }
  void set_checkpointing(bool on) override { checkpointing_ = on; }
  at::Tensor token_table() const { return word_embeddings->weight; }
  std::optional<int64_t> pad_token_id() const { return config().optional_integer("pad_token_id"); }

 private:
  /// The biases are rounded to bfloat16, in which these models were trained, and divided as the scores are.
  at::Tensor alibi(const nn::MaskRequest& request) const {
    const auto slopes = nn::alibi_slopes(alibi_heads_, request.like.device()).to(at::kBFloat16);
    const auto bias = slopes.view({1, alibi_heads_, 1, 1}) * nn::key_positions(request);
    return bias.to(request.like.scalar_type()) / std::sqrt(static_cast<double>(head_dim_));
  }

  int64_t alibi_heads_ = 0, head_dim_ = 0;
  bool checkpointing_ = false;
  std::shared_ptr<nn::Embedding> word_embeddings;
  std::shared_ptr<nn::List<FalconDecoderLayer>> h;
  std::shared_ptr<nn::LayerNorm> ln_f;
  std::shared_ptr<nn::RotaryEmbedding> rotary_emb;
};

}  // namespace

std::vector<Architecture> falcon_architectures() {
  return decoder_architectures<FalconModel>(
      {"falcon", "FalconModel", "FalconForCausalLM", "FalconForSequenceClassification",
       "FalconForTokenClassification"},
      {"rotary_emb.inv_freq"});
}

}  // namespace graft
