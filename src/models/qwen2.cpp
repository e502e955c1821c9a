#include "models/qwen2.h"

#include "models/gated_decoder.h"

namespace graft {
namespace {

GatedDecoderSpec qwen2_spec(const Config& config) {
  auto spec = read_gated_decoder(config, {.family = "qwen2",
                                          .vocab = 151936,
                                          .hidden = 4096,
                                          .intermediate = 22016,
                                          .layers = 32,
                                          .heads = 32,
                                          .kv_heads = 32,
                                          .positions = 32768});
  spec.qkv_bias = true;
  spec.windows = qwen_windows(config, spec.layers);
  return spec;
}

}  // namespace

std::vector<Architecture> qwen2_architectures() {
  return gated_architectures<GatedDecoderOf<qwen2_spec>>({"qwen2", "Qwen2Model", "Qwen2ForCausalLM",
                                                          "Qwen2ForSequenceClassification",
                                                          "Qwen2ForTokenClassification"});
}

}  // namespace graft
