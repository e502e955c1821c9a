#include "adapters/methods/ln_tuning.h"

#include "adapters/replacement.h"

namespace graft::adapters {
namespace {

/// PEFT takes any layer here, not only normalisations.
std::shared_ptr<Part> ln_tuning_part(const PartBuild& build) {
  if (!build.layer.weight.defined()) build.refuse("it has no weight that could be tuned");
  return replacement_part(build, "ln_tuning_layers.");
}

}  // namespace

Method ln_tuning_method() {
  return {.type = "LN_TUNING",
          .fields = {},
          .lacks = {"layers_to_transform", "layers_pattern"},
          .part = ln_tuning_part,
          .default_targets = {{"llama", {"input_layernorm", "post_attention_layernorm", "norm"}},
                              {"mistral", {"input_layernorm", "post_attention_layernorm", "norm"}},
                              {"qwen2", {"post_attention_layernorm"}},
                              {"qwen3", {"post_attention_layernorm"}},
                              {"gemma", {"input_layernorm", "post_attention_layernorm", "norm"}},
                              {"gemma2",
                               {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                                "post_feedforward_layernorm", "norm"}},
                              {"bloom", {"input_layernorm", "post_attention_layernorm", "ln_f"}},
                              {"falcon", {"input_layernorm", "post_attention_layernorm", "ln_f"}},
                              {"gpt2", {"ln_1", "ln_2", "ln_f"}},
                              {"t5", {"layer_norm", "final_layer_norm"}}}};
}

}  // namespace graft::adapters
