#include "models/gemma.h"

#include "graft/error.h"
#include "models/gated_decoder.h"

namespace graft {
namespace {

GatedDecoderSpec gemma_spec(const Config& config) {
  auto spec = read_gated_decoder(config, {.family = "gemma",
                                          .vocab = 256000,
                                          .hidden = 3072,
                                          .intermediate = 24576,
                                          .layers = 28,
                                          .heads = 16,
                                          .kv_heads = 16,
                                          .head_dim = 256,
                                          .positions = 8192,
                                          .activation = "gelu_pytorch_tanh",
                                          .pad_token_id = 0});
  if (config.boolean("use_bidirectional_attention", false))
    throw ConfigError("[gemma] \"use_bidirectional_attention\" is true: only causal attention is supported");
  // The first releases say "gelu" and mean its approximation.
  if (config.string("hidden_act", "") == "gelu") spec.activation = nn::activation("gelu_pytorch_tanh");
  spec.qkv_bias = spec.output_bias = config.boolean("attention_bias", false);
  spec.norm_form = nn::RMSNorm::Form::plus_one;
  spec.scales_embeddings = true;
  return spec;
}

}  // namespace

std::vector<Architecture> gemma_architectures() {
  return gated_architectures<GatedDecoderOf<gemma_spec, /*kTies=*/true>>(
      {"gemma", "GemmaModel", "GemmaForCausalLM", "GemmaForSequenceClassification",
       "GemmaForTokenClassification"});
}

}  // namespace graft
