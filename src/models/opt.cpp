#include "models/opt.h"

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

namespace graft {
namespace {

// The position table's first two rows belong to no position: fairseq, where OPT was trained, kept one for
// padding (row 1).
constexpr int64_t kPositionOffset = 2;

struct OPTSizes {
  int64_t hidden, ffn, heads, layers, vocab, positions, word_dim;
  double dropout, attention_dropout, layerdrop;
  bool norm_before, final_norm, bias, affine;
  nn::Activation activation;

  explicit OPTSizes(const Config& config)
      : hidden(config.size("hidden_size", 768)),
        ffn(config.size("ffn_dim", 3072)),
        heads(config.size("num_attention_heads", 12)),
        layers(layer_count(config, "num_hidden_layers", 12)),
        vocab(config.size("vocab_size", 50272)),
        positions(config.size("max_position_embeddings", 2048)),
        word_dim(config.size("word_embed_proj_dim", hidden)),
        dropout(nn::dropout_rate(config, "dropout", 0.1)),
        attention_dropout(nn::dropout_rate(config, "attention_dropout", 0.0)),
        layerdrop(nn::dropout_rate(config, "layerdrop", 0.0)),
        norm_before(config.boolean("do_layer_norm_before", true)),
        // Checkpoints fine-tuned before transformers 4.20.1 have none after the last layer, and say so.
        final_norm(!config.boolean("_remove_final_layer_norm", false) && norm_before),
        bias(config.boolean("enable_bias", true)),
        affine(config.boolean("layer_norm_elementwise_affine", true)),
        activation(nn::activation(config.string("activation_function", "relu"), "activation_function")) {
    check_common_config(config);
    config.acknowledge(
        {"activation_dropout", "init_std"});  // the first is in old configs and was never applied
    if (hidden % heads != 0)
      throw ConfigError("[opt] \"num_attention_heads\" (" + std::to_string(heads) +
                        ") does not divide \"hidden_size\" (" + std::to_string(hidden) + ")");
  }
};

/// What every layer of one call is given.
struct LayerInputs {
  at::Tensor mask;
  std::shared_ptr<KVCache> cache;
};

class OPTAttention : public torch::nn::Module {
 public:
  OPTAttention(const nn::Build& b, const OPTSizes& s, int64_t layer)
      : head_dim_(s.hidden / s.heads), layer_(layer), dropout_(s.attention_dropout) {
    k_proj = b.child<nn::Linear>(*this, "k_proj", s.hidden, s.hidden, s.bias);
    v_proj = b.child<nn::Linear>(*this, "v_proj", s.hidden, s.hidden, s.bias);
    q_proj = b.child<nn::Linear>(*this, "q_proj", s.hidden, s.hidden, s.bias);
    out_proj = b.child<nn::Linear>(*this, "out_proj", s.hidden, s.hidden, s.bias);
  }

  at::Tensor forward(const at::Tensor& x, const LayerInputs& in) {
    // The queries are scaled, and rounded, before the product: in half precision scaling the scores gives
    // other bits.
    const auto q =
        nn::split_heads(q_proj->forward(x) * (1.0 / std::sqrt(static_cast<double>(head_dim_))), head_dim_);
    auto k = nn::split_heads(k_proj->forward(x), head_dim_);
    auto v = nn::split_heads(v_proj->forward(x), head_dim_);
    if (in.cache) std::tie(k, v) = in.cache->update(layer_, k, v);
    const nn::AttentionOptions options{
        .scale = 1.0, .causal = true, .dropout = is_training() ? dropout_ : 0.0};
    return out_proj->forward(nn::attend(q, k, v, in.mask, options));
  }

 private:
  int64_t head_dim_, layer_;
  double dropout_;
  std::shared_ptr<nn::Linear> k_proj, v_proj, q_proj, out_proj;
};

class OPTDecoderLayer : public torch::nn::Module {
 public:
  OPTDecoderLayer(const nn::Build& b, const OPTSizes& s, int64_t layer)
      : norm_before_(s.norm_before), dropout_(s.dropout), activation_(s.activation) {
    self_attn = b.child<OPTAttention>(*this, "self_attn", s, layer);
    self_attn_layer_norm = b.child<nn::LayerNorm>(*this, "self_attn_layer_norm", s.hidden, 1e-5, s.affine);
    fc1 = b.child<nn::Linear>(*this, "fc1", s.hidden, s.ffn, s.bias);
    fc2 = b.child<nn::Linear>(*this, "fc2", s.ffn, s.hidden, s.bias);
    final_layer_norm = b.child<nn::LayerNorm>(*this, "final_layer_norm", s.hidden, 1e-5, s.affine);
  }

  at::Tensor forward(const at::Tensor& x, const LayerInputs& in) {
    const auto attended =
        residual(x, *self_attn_layer_norm, [&](const at::Tensor& h) { return self_attn->forward(h, in); });
    return residual(attended, *final_layer_norm,
                    [&](const at::Tensor& h) { return fc2->forward(activation_(fc1->forward(h))); });
  }

 private:
  template <class Block>
  at::Tensor residual(const at::Tensor& x, nn::LayerNorm& norm, Block block) {
    const auto y = x + nn::dropout(block(norm_before_ ? norm.forward(x) : x), dropout_, is_training());
    return norm_before_ ? y : norm.forward(y);
  }

  bool norm_before_;
  double dropout_;
  nn::Activation activation_;
  std::shared_ptr<OPTAttention> self_attn;
  std::shared_ptr<nn::LayerNorm> self_attn_layer_norm, final_layer_norm;
  std::shared_ptr<nn::Linear> fc1, fc2;
};

class OPTDecoder : public torch::nn::Module {
 public:
  OPTDecoder(const nn::Build& b, const OPTSizes& s, int64_t padding_row)
      : positions_(s.positions), layerdrop_(s.layerdrop) {
    embed_tokens = b.child<nn::Embedding>(*this, "embed_tokens", s.vocab, s.word_dim, padding_row);
    embed_positions =
        b.child<nn::Embedding>(*this, "embed_positions", s.positions + kPositionOffset, s.hidden);
    if (s.word_dim != s.hidden) {
      project_out = b.child<nn::Linear>(*this, "project_out", s.hidden, s.word_dim, false);
      project_in = b.child<nn::Linear>(*this, "project_in", s.word_dim, s.hidden, false);
    }
    if (s.final_norm)
      final_layer_norm = b.child<nn::LayerNorm>(*this, "final_layer_norm", s.hidden, 1e-5, s.affine);
    layers = b.child<nn::List<OPTDecoderLayer>>(
        *this, "layers", s.layers,
        [&](const nn::Build& at, int64_t i) { return std::make_shared<OPTDecoderLayer>(at, s, i); });
  }

  /// `x`: the tokens, embedded.
  at::Tensor forward(at::Tensor x, const ModelInputs& inputs, bool recompute) {
    const auto cache = cache_for_layers(inputs, recompute);
    // No position_ids here: OPT has no packed sequences, its positions say nothing of where one ends.
    const LayerInputs in{.mask = nn::causal_mask({x, inputs.attention_mask, cache.get()}), .cache = cache};
    const auto at_position = embed_positions->forward(positions(inputs, x) + kPositionOffset);
    x = (project_in ? project_in->forward(x) : x) + at_position;
    for (const auto& layer : *layers) x = dropped_or(layer, x, in, recompute);
    if (cache) cache->advance(x.size(1));
    if (final_layer_norm) x = final_layer_norm->forward(x);
    return project_out ? project_out->forward(x) : x;
  }

  std::shared_ptr<nn::Embedding> embed_tokens;

 private:
  /// LayerDrop (Fan et al. 2019). The layer runs in any case, and the draw picks its result or its input: the
  /// draw need not be read on the host, and a skipped layer's parameters get a gradient of zero.
  at::Tensor dropped_or(const std::shared_ptr<OPTDecoderLayer>& layer, const at::Tensor& x,
                        const LayerInputs& in, bool recompute) {
    const bool may_drop = layerdrop_ > 0 && is_training();
    const auto draw = may_drop ? at::rand({}, x.options().dtype(at::kFloat)) : at::Tensor();
    const auto y = nn::with_weights(*layer, x, [&](const at::Tensor& given) {
      return recompute
                 ? nn::checkpointed(
                       *layer, [layer, in](const at::Tensor& h) { return layer->forward(h, in); }, given)
                 : layer->forward(given, in);
    });
    return may_drop ? at::where(draw.lt(layerdrop_), x, y) : y;
  }

  /// As given, else counted over the tokens that attention_mask leaves: padding is at -1, wherever it stands.
  at::Tensor positions(const ModelInputs& inputs, const at::Tensor& x) const {
    const auto& mask = inputs.attention_mask;
    if (inputs.position_ids.defined() || !mask.defined()) {
      check_counted_positions(inputs, positions_);
      return positions_or_default(inputs, x);
    }
    if (mask.dim() != 2)
      throw UsageError(
          "[opt] positions cannot be counted over a ready-made attention_mask: give position_ids with it");
    const auto& cache = inputs.past_key_values;
    const int64_t tokens = x.size(1), needed = tokens + (cache ? cache->seen() : 0);
    if (mask.size(1) < needed)
      throw UsageError("[opt] attention_mask covers " + std::to_string(mask.size(1)) + " tokens of " +
                       std::to_string(needed) + ", those in the cache included");
    const auto present = mask.to(x.device(), at::kLong);
    auto counted = present.cumsum(1) * present - 1;
    if (!cache) return counted;
    const auto mine = at::arange(tokens, present.options()) + cache->seen_tensor(present.device());
    return counted.index_select(1, mine);
  }

  int64_t positions_;
  double layerdrop_;
  std::shared_ptr<nn::Embedding> embed_positions;
  std::shared_ptr<nn::Linear> project_in, project_out;
  std::shared_ptr<nn::LayerNorm> final_layer_norm;
  std::shared_ptr<nn::List<OPTDecoderLayer>> layers;
};

class OPTModel : public PreTrainedModel {
 public:
  static constexpr const char* kPrefix = "model";
  static constexpr bool kTiesByDefault = true;

  OPTModel(const nn::Build& b, const Config& config) : PreTrainedModel(config), pad_(pad_token(config, 1)) {
    const OPTSizes s(config);
    positions_ = s.positions;
    decoder = b.child<OPTDecoder>(*this, "decoder", s, padding_row(pad_, s.vocab));
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "OPT", {"input_ids"}, {"attention_mask", "position_ids", "past_key_values"});
    return {.last_hidden_state =
                decoder->forward(embedded(*this, inputs), inputs, checkpointing_ && is_training())};
  }

  at::Tensor input_embeddings(const at::Tensor& input_ids) const override {
    return decoder->embed_tokens->forward(input_ids);
  }

  void set_checkpointing(bool on) override { checkpointing_ = on; }
  std::optional<int64_t> position_limit() const override { return positions_; }
  at::Tensor token_table() const { return decoder->embed_tokens->weight; }
  std::optional<int64_t> pad_token_id() const { return pad_; }

 private:
  std::optional<int64_t> pad_;
  int64_t positions_ = 0;
  bool checkpointing_ = false;
  std::shared_ptr<OPTDecoder> decoder;
};

}  // namespace

std::vector<Architecture> opt_architectures() {
  const auto row = [](std::string_view name, Task task, auto make) {
    return Architecture{.name = name,
                        .model_type = "opt",
                        .task = task,
                        .base_prefix = OPTModel::kPrefix,
                        .make = make,
                        .init_std_key = "init_std",
                        .ties_by_default = OPTModel::kTiesByDefault};
  };
  auto causal = row("OPTForCausalLM", Task::causal_lm, make_model<CausalLM<OPTModel>>);
  causal.tied = {{"lm_head.weight", "model.decoder.embed_tokens.weight"}};
  return {row("OPTModel", Task::base, make_model<OPTModel>), causal,
          row("OPTForSequenceClassification", Task::sequence_classification,
              make_model<SequenceClassifier<OPTModel>>)};
}

}  // namespace graft
