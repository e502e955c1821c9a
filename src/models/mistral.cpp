#include "models/mistral.h"

#include "models/gated_decoder.h"

namespace graft {
namespace {

GatedDecoderSpec mistral_spec(const Config& config) {
  auto spec = read_gated_decoder(config, {.family = "mistral",
                                          .vocab = 32000,
                                          .hidden = 4096,
                                          .intermediate = 14336,
                                          .layers = 32,
                                          .heads = 32,
                                          .kv_heads = 8,
                                          .positions = 4096 * 32});
  const int64_t window = sliding_window(config, 4096);
  if (window > 0) spec.windows.assign(static_cast<size_t>(spec.layers), window);
  return spec;
}

}  // namespace

std::vector<Architecture> mistral_architectures() {
  return gated_architectures<GatedDecoderOf<mistral_spec>>({"mistral", "MistralModel", "MistralForCausalLM",
                                                            "MistralForSequenceClassification",
                                                            "MistralForTokenClassification"});
}

}  // namespace graft
