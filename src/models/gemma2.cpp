#include "models/gemma2.h"

#include <cmath>

#include "graft/error.h"
#include "models/gated_decoder.h"

namespace graft {
namespace {

/// 0 where there is none.
double softcap(const Config& config, std::string_view key, double when_absent) {
  const double cap = nullable_number(config, key, when_absent).value_or(0);
  if (cap < 0) throw ConfigError("[gemma2] \"" + std::string(key) + "\" is negative");
  return cap;
}

GatedDecoderSpec gemma2_spec(const Config& config) {
  auto spec = read_gated_decoder(config, {.family = "gemma2",
                                          .vocab = 256000,
                                          .hidden = 2304,
                                          .intermediate = 9216,
                                          .layers = 26,
                                          .heads = 8,
                                          .kv_heads = 4,
                                          .head_dim = 256,
                                          .positions = 8192,
                                          .activation_key = "hidden_activation",
                                          .activation = "gelu_pytorch_tanh",
                                          .pad_token_id = 0});
  if (config.boolean("use_bidirectional_attention", false))
    throw ConfigError("[gemma2] \"use_bidirectional_attention\" is true: only causal attention is supported");
  const int64_t scalar = config.size("query_pre_attn_scalar", 256);
  spec.scale = 1.0 / std::sqrt(static_cast<double>(scalar));
  spec.qkv_bias = spec.output_bias = config.boolean("attention_bias", false);
  spec.norm_form = nn::RMSNorm::Form::plus_one;
  spec.four_norms = true;
  spec.scales_embeddings = true;
  spec.attention_softcap = softcap(config, "attn_logit_softcapping", 50.0);
  spec.logit_softcap = softcap(config, "final_logit_softcapping", 30.0);
  spec.plain_attention = true;
  spec.windows = layer_windows(config, spec.layers, sliding_window(config, 4096),
                               [](int64_t layer) { return layer % 2 == 0; });
  return spec;
}

}  // namespace

std::vector<Architecture> gemma2_architectures() {
  return gated_architectures<GatedDecoderOf<gemma2_spec, /*kTies=*/true>>(
      {"gemma2", "Gemma2Model", "Gemma2ForCausalLM", "Gemma2ForSequenceClassification",
       "Gemma2ForTokenClassification"});
}

}  // namespace graft
