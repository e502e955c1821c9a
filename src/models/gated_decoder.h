// The decoder that most families of today are: RMS norms, rotary positions, grouped-query attention and a
// gated feed-forward block. A family's own file says what it has of what they differ in.
#pragma once
#include "models/decoder_heads.h"
#include "nn/activation.h"
#include "nn/embedding.h"
#include "nn/norm.h"
#include "nn/rope.h"

namespace graft {

/// What a family takes where config.json says nothing.
struct GatedDefaults {
  std::string_view family;  ///< transformers' model_type
  int64_t vocab, hidden, intermediate, layers, heads;
  std::optional<int64_t> kv_heads = {};  ///< none: as many as heads
  std::optional<int64_t> head_dim = {};  ///< none: hidden / heads
  int64_t positions = 2048;
  double eps = 1e-6;
  const char* activation_key = "hidden_act";
  std::string activation = "silu";
  std::optional<int64_t> pad_token_id = {};
};

struct GatedDecoderSpec {
  std::string_view family = {};
  int64_t hidden = 0, intermediate = 0, heads = 0, kv_heads = 0, head_dim = 0, layers = 0, vocab = 0;
  std::optional<int64_t> pad = {};
  double eps = 0, scale = 0, attention_dropout = 0;
  nn::Activation activation = nullptr;

  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool fused = false;       ///< q, k and v are one projection, gate and up another (Phi-3)
  bool head_norms = false;  ///< queries and keys are normalised, head by head (Qwen3)
  nn::RMSNorm::Form norm_form = nn::RMSNorm::Form::plain;
  bool four_norms = false;         ///< also after attention and feed-forward (Gemma 2)
  bool scales_embeddings = false;  ///< by the square root of the width (Gemma)
  nn::RopeDefaults rope = {};
  double residual_dropout = 0;
  double attention_softcap = 0, logit_softcap = 0;  ///< 0: none
  bool plain_attention = false;                     ///< as AttentionOptions has it
  std::vector<int64_t> windows =
      {};  ///< by layer: how far it sees, 0 for all the way; empty: no layer has one
};

/// What all families have; ConfigError for sizes that do not fit each other.
GatedDecoderSpec read_gated_decoder(const Config& config, const GatedDefaults& defaults);

/// `sliding_window`, 0 for none; `when_absent` where the config does not say.
int64_t sliding_window(const Config& config, std::optional<int64_t> when_absent);

/// By `layer_types`, `window` for each "sliding_attention"; where the config has none, `slides` says which
/// are.
std::vector<int64_t> layer_windows(const Config& config, int64_t layers, int64_t window,
                                   const std::function<bool(int64_t)>& slides);

/// Qwen's: `use_sliding_window` switches it on, for the layers from `max_window_layers` on.
std::vector<int64_t> qwen_windows(const Config& config, int64_t layers);

class GatedDecoderLayer;

class GatedDecoder : public PreTrainedModel {
 public:
  static constexpr const char* kPrefix = "model";
  static constexpr const char* kTokenTable = "model.embed_tokens.weight";
  static TokenHead token_head(const Config& config) { return generic_token_head(config); }

  GatedDecoder(const nn::Build& b, const Config& config, const GatedDecoderSpec& spec);
  ~GatedDecoder() override;

  ModelOutput forward(const ModelInputs& inputs) override;
  at::Tensor input_embeddings(const at::Tensor& input_ids) const override;
  std::optional<int64_t> rotation_limit() const override { return rotary_emb->rotation_limit(); }
  void set_checkpointing(bool on) override { checkpointing_ = on; }
  at::Tensor token_table() const { return embed_tokens->weight; }
  std::optional<int64_t> pad_token_id() const { return spec_.pad; }
  at::Tensor cap_logits(const at::Tensor& logits) const;

 private:
  GatedDecoderSpec spec_;
  bool checkpointing_ = false;
  std::shared_ptr<nn::Embedding> embed_tokens;
  std::shared_ptr<nn::List<GatedDecoderLayer>> layers;
  std::shared_ptr<nn::RMSNorm> norm;
  std::shared_ptr<nn::RotaryEmbedding> rotary_emb;
};

/// A family's body: its name, its spec, and whether it ties its embeddings where the config does not say.
template <GatedDecoderSpec (*kSpec)(const Config&), bool kTies = false>
class GatedDecoderOf : public GatedDecoder {
 public:
  static constexpr bool kTiesByDefault = kTies;
  GatedDecoderOf(const nn::Build& b, const Config& config) : GatedDecoder(b, config, kSpec(config)) {}
};

/// The classes of a family over its body.
template <class Body>
std::vector<Architecture> gated_architectures(const DecoderNames& names) {
  return decoder_architectures<Body>(names, {"rotary_emb.inv_freq"});
}

}  // namespace graft
