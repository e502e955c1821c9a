#include "models/gpt2.h"

#include <cmath>

#include "graft/error.h"
#include "models/decoder_heads.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/mask.h"
#include "nn/norm.h"
#include "nn/queries.h"

namespace graft {
namespace {

struct GPT2Sizes {
  int64_t hidden, heads, layers, positions, vocab, inner;
  double eps, residual_dropout, embedding_dropout, attention_dropout;
  bool scale, scale_by_layer;
  nn::Activation activation;

  explicit GPT2Sizes(const Config& config)
      : hidden(aliased_size(config, "n_embd", "hidden_size", 768)),
        heads(aliased_size(config, "n_head", "num_attention_heads", 12)),
        layers(aliased_size(config, "n_layer", "num_hidden_layers", 12, 0)),
        positions(aliased_size(config, "n_positions", "max_position_embeddings", 1024)),
        vocab(config.size("vocab_size", 50257)),
        inner(config.size("n_inner", 4 * hidden)),
        eps(norm_eps(config, "layer_norm_epsilon", 1e-5)),
        residual_dropout(nn::dropout_rate(config, "resid_pdrop", 0.1)),
        embedding_dropout(nn::dropout_rate(config, "embd_pdrop", 0.1)),
        attention_dropout(nn::dropout_rate(config, "attn_pdrop", 0.1)),
        scale(config.boolean("scale_attn_weights", true)),
        scale_by_layer(config.boolean("scale_attn_by_inverse_layer_idx", false)),
        activation(nn::activation(config.string("activation_function", "gelu_new"), "activation_function")) {
    check_common_config(config);
    // SDPA keeps scores and softmax in float32 whatever the dtype, which is what reorder_and_upcast_attn asks
    // for. The rest: the double-heads model's, and the context length under its first name.
    config.acknowledge({"reorder_and_upcast_attn", "n_ctx", "summary_activation", "summary_first_dropout",
                        "summary_proj_to_labels", "summary_type", "summary_use_proj"});
    if (hidden % heads != 0)
      throw ConfigError("[gpt2] \"n_head\" (" + std::to_string(heads) + ") does not divide \"n_embd\" (" +
                        std::to_string(hidden) + ")");
  }

  double attention_scale(int64_t layer) const {
    const int64_t head_dim = hidden / heads;
    const double by_width = scale ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
    return scale_by_layer ? by_width / static_cast<double>(layer + 1) : by_width;
  }

  /// For what writes onto the residual stream: 2 * layers such outputs add up, so each starts smaller
  /// (Radford et al. 2019).
  nn::Init residual_init(const nn::Build& b) const {
    return {nn::Init::Kind::normal, b.init_std() / std::sqrt(2.0 * static_cast<double>(layers))};
  }
};

/// What every block of one call is given.
struct BlockInputs {
  at::Tensor mask;
  std::shared_ptr<KVCache> cache;
};

class GPT2Attention : public torch::nn::Module {
 public:
  GPT2Attention(const nn::Build& b, const GPT2Sizes& s, int64_t layer)
      : hidden_(s.hidden),
        head_dim_(s.hidden / s.heads),
        layer_(layer),
        scale_(s.attention_scale(layer)),
        attn_dropout_(s.attention_dropout),
        resid_dropout_(s.residual_dropout) {
    c_attn = b.child<nn::Conv1D>(*this, "c_attn", s.hidden, 3 * s.hidden);
    c_proj = b.child<nn::Conv1D>(*this, "c_proj", s.hidden, s.hidden, s.residual_init(b));
  }

  at::Tensor forward(const at::Tensor& x, const BlockInputs& in) {
    const auto qkv = c_attn->forward(x).split(hidden_, 2);
    const auto q = nn::split_heads(qkv[0], head_dim_);
    auto k = nn::split_heads(qkv[1], head_dim_), v = nn::split_heads(qkv[2], head_dim_);
    if (in.cache) std::tie(k, v) = in.cache->update(layer_, k, v);
    const nn::AttentionOptions options{
        .scale = scale_, .causal = true, .dropout = is_training() ? attn_dropout_ : 0.0};
    const nn::WithQueries shown(q);
    return nn::dropout(c_proj->forward(nn::attend(q, k, v, in.mask, options)), resid_dropout_, is_training());
  }

 private:
  int64_t hidden_, head_dim_, layer_;
  double scale_, attn_dropout_, resid_dropout_;
  std::shared_ptr<nn::Conv1D> c_attn, c_proj;
};

class GPT2MLP : public torch::nn::Module {
 public:
  GPT2MLP(const nn::Build& b, const GPT2Sizes& s) : dropout_(s.residual_dropout), activation_(s.activation) {
    c_fc = b.child<nn::Conv1D>(*this, "c_fc", s.hidden, s.inner);
    c_proj = b.child<nn::Conv1D>(*this, "c_proj", s.inner, s.hidden, s.residual_init(b));
  }

  at::Tensor forward(const at::Tensor& x) {
    return nn::dropout(c_proj->forward(activation_(c_fc->forward(x))), dropout_, is_training());
  }

 private:
  double dropout_;
  nn::Activation activation_;
  std::shared_ptr<nn::Conv1D> c_fc, c_proj;
};

class GPT2Block : public torch::nn::Module {
 public:
  GPT2Block(const nn::Build& b, const GPT2Sizes& s, int64_t layer) {
    ln_1 = b.child<nn::LayerNorm>(*this, "ln_1", s.hidden, s.eps);
    attn = b.child<GPT2Attention>(*this, "attn", s, layer);
    ln_2 = b.child<nn::LayerNorm>(*this, "ln_2", s.hidden, s.eps);
    mlp = b.child<GPT2MLP>(*this, "mlp", s);
  }

  at::Tensor forward(const at::Tensor& x, const BlockInputs& in) {
    const auto attended = x + attn->forward(ln_1->forward(x), in);
    return attended + mlp->forward(ln_2->forward(attended));
  }

 private:
  std::shared_ptr<nn::LayerNorm> ln_1, ln_2;
  std::shared_ptr<GPT2Attention> attn;
  std::shared_ptr<GPT2MLP> mlp;
};

class GPT2Model : public PreTrainedModel {
 public:
  static constexpr const char* kPrefix = "transformer";
  static constexpr bool kTiesByDefault = true;

  GPT2Model(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    const GPT2Sizes s(config);
    positions_ = s.positions;
    dropout_ = s.embedding_dropout;
    wte = b.child<nn::Embedding>(*this, "wte", s.vocab, s.hidden);
    wpe = b.child<nn::Embedding>(*this, "wpe", s.positions, s.hidden);
    h = b.child<nn::List<GPT2Block>>(*this, "h", s.layers, [&](const nn::Build& at, int64_t i) {
      return std::make_shared<GPT2Block>(at, s, i);
    });
    ln_f = b.child<nn::LayerNorm>(*this, "ln_f", s.hidden, s.eps);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "GPT-2", {"input_ids"},
                 {"attention_mask", "position_ids", "token_type_ids", "past_key_values"});
    const bool recompute = checkpointing_ && is_training();
    const auto cache = cache_for_layers(inputs, recompute);
    auto x = embed(inputs);
    const BlockInputs in{
        .mask = nn::causal_mask({x, inputs.attention_mask, cache.get(), packed_positions(config(), inputs)}),
        .cache = cache};
    x = nn::through(*h, std::move(x), recompute, in);
    if (cache) cache->advance(x.size(1));
    return {.last_hidden_state = ln_f->forward(x)};
  }

  at::Tensor input_embeddings(const at::Tensor& input_ids) const override { return wte->forward(input_ids); }

  void set_checkpointing(bool on) override { checkpointing_ = on; }
  std::optional<int64_t> position_limit() const override { return positions_; }
  at::Tensor token_table() const { return wte->weight; }
  std::optional<int64_t> pad_token_id() const { return config().optional_integer("pad_token_id"); }

 private:
  at::Tensor embed(const ModelInputs& inputs) {
    check_counted_positions(inputs, positions_);
    const auto tokens = embedded(*this, inputs);
    auto x = tokens + wpe->forward(positions_or_default(inputs, tokens));
    // Token types have no table of their own: they are tokens.
    if (inputs.token_type_ids.defined()) x = x + wte->forward(inputs.token_type_ids);
    return nn::dropout(x, dropout_, is_training());
  }

  int64_t positions_;
  double dropout_;
  bool checkpointing_ = false;
  std::shared_ptr<nn::Embedding> wte, wpe;
  std::shared_ptr<nn::List<GPT2Block>> h;
  std::shared_ptr<nn::LayerNorm> ln_f;
};

}  // namespace

std::vector<Architecture> gpt2_architectures() {
  const auto row = [](std::string_view name, Task task, auto make) {
    return Architecture{.name = name,
                        .model_type = "gpt2",
                        .task = task,
                        .base_prefix = GPT2Model::kPrefix,
                        .make = make,
                        .ties_by_default = GPT2Model::kTiesByDefault,
                        .obsolete = {".attn.bias", ".attn.masked_bias"}};
  };
  auto causal = row("GPT2LMHeadModel", Task::causal_lm, make_model<CausalLM<GPT2Model>>);
  causal.tied = {{"lm_head.weight", "transformer.wte.weight"}};
  return {row("GPT2Model", Task::base, make_model<GPT2Model>), causal,
          row("GPT2ForSequenceClassification", Task::sequence_classification,
              make_model<SequenceClassifier<GPT2Model>>)};
}

}  // namespace graft
