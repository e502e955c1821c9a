#include "models/qwen3.h"

#include "models/gated_decoder.h"

namespace graft {
namespace {

GatedDecoderSpec qwen3_spec(const Config& config) {
  auto spec = read_gated_decoder(config, {.family = "qwen3",
                                          .vocab = 151936,
                                          .hidden = 4096,
                                          .intermediate = 22016,
                                          .layers = 32,
                                          .heads = 32,
                                          .kv_heads = 32,
                                          .head_dim = 128,
                                          .positions = 32768});
  spec.qkv_bias = spec.output_bias = config.boolean("attention_bias", false);
  spec.head_norms = true;
  spec.windows = qwen_windows(config, spec.layers);
  return spec;
}

}  // namespace

std::vector<Architecture> qwen3_architectures() {
  return gated_architectures<GatedDecoderOf<qwen3_spec>>({"qwen3", "Qwen3Model", "Qwen3ForCausalLM",
                                                          "Qwen3ForSequenceClassification",
                                                          "Qwen3ForTokenClassification"});
}

}  // namespace graft
