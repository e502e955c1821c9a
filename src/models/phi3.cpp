#include "models/phi3.h"

#include "models/gated_decoder.h"

namespace graft {
namespace {

GatedDecoderSpec phi3_spec(const Config& config) {
  auto spec = read_gated_decoder(config, {.family = "phi3",
                                          .vocab = 32064,
                                          .hidden = 3072,
                                          .intermediate = 8192,
                                          .layers = 32,
                                          .heads = 32,
                                          .positions = 4096,
                                          .eps = 1e-5,
                                          .pad_token_id = 32000});
  config.acknowledge({"embd_pdrop"});  // which transformers applies nowhere
  spec.fused = true;
  spec.rope.partial_factor = 1.0;
  spec.rope.original_positions = 4096;
  spec.rope.renamed_longrope = true;
  spec.residual_dropout = nn::dropout_rate(config, "resid_pdrop", 0.0);
  const int64_t window = sliding_window(config, {});
  if (window > 0) spec.windows.assign(static_cast<size_t>(spec.layers), window);
  return spec;
}

}  // namespace

std::vector<Architecture> phi3_architectures() {
  return gated_architectures<GatedDecoderOf<phi3_spec>>({"phi3", "Phi3Model", "Phi3ForCausalLM",
                                                         "Phi3ForSequenceClassification",
                                                         "Phi3ForTokenClassification"});
}

}  // namespace graft
