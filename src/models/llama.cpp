#include "models/llama.h"

#include "models/gated_decoder.h"

namespace graft {
namespace {

GatedDecoderSpec llama_spec(const Config& config) {
  auto spec = read_gated_decoder(
      config,
      {.family = "llama", .vocab = 32000, .hidden = 4096, .intermediate = 11008, .layers = 32, .heads = 32});
  spec.qkv_bias = spec.output_bias = config.boolean("attention_bias", false);
  spec.mlp_bias = config.boolean("mlp_bias", false);
  return spec;
}

}  // namespace

std::vector<Architecture> llama_architectures() {
  return gated_architectures<GatedDecoderOf<llama_spec>>({"llama", "LlamaModel", "LlamaForCausalLM",
                                                          "LlamaForSequenceClassification",
                                                          "LlamaForTokenClassification"});
}

}  // namespace graft
