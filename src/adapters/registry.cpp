// The list of methods: one line for each pair in methods/.
#include "adapters/method.h"
#include "adapters/methods/adalora.h"
#include "adapters/methods/adamss.h"
#include "adapters/methods/adaption_prompt.h"
#include "adapters/methods/beft.h"
#include "adapters/methods/boft.h"
#include "adapters/methods/c3a.h"
#include "adapters/methods/cartridge.h"
#include "adapters/methods/cpt.h"
#include "adapters/methods/deft.h"
#include "adapters/methods/delora.h"
#include "adapters/methods/fourierft.h"
#include "adapters/methods/frod.h"
#include "adapters/methods/glora.h"
#include "adapters/methods/gralora.h"
#include "adapters/methods/hira.h"
#include "adapters/methods/hra.h"
#include "adapters/methods/ia3.h"
#include "adapters/methods/lily.h"
#include "adapters/methods/ln_tuning.h"
#include "adapters/methods/loha.h"
#include "adapters/methods/lokr.h"
#include "adapters/methods/lora.h"
#include "adapters/methods/miss.h"
#include "adapters/methods/multitask_prompt_tuning.h"
#include "adapters/methods/oft.h"
#include "adapters/methods/osf.h"
#include "adapters/methods/p_tuning.h"
#include "adapters/methods/peanut.h"
#include "adapters/methods/poly.h"
#include "adapters/methods/prefix_tuning.h"
#include "adapters/methods/prompt_tuning.h"
#include "adapters/methods/psoft.h"
#include "adapters/methods/pvera.h"
#include "adapters/methods/randlora.h"
#include "adapters/methods/road.h"
#include "adapters/methods/shira.h"
#include "adapters/methods/supertuning.h"
#include "adapters/methods/tinylora.h"
#include "adapters/methods/trainable_tokens.h"
#include "adapters/methods/unilora.h"
#include "adapters/methods/vblora.h"
#include "adapters/methods/vera.h"
#include "adapters/methods/waveft.h"
#include "adapters/methods/xlora.h"
#include "graft/error.h"

namespace graft::adapters {

const DefaultTargets& usual_targets() {
  static const DefaultTargets targets{{"llama", {"q_proj", "v_proj"}},   {"mistral", {"q_proj", "v_proj"}},
                                      {"qwen2", {"q_proj", "v_proj"}},   {"qwen3", {"q_proj", "v_proj"}},
                                      {"gemma", {"q_proj", "v_proj"}},   {"gemma2", {"q_proj", "v_proj"}},
                                      {"opt", {"q_proj", "v_proj"}},     {"gpt2", {"c_attn"}},
                                      {"gpt_neox", {"query_key_value"}}, {"bloom", {"query_key_value"}},
                                      {"falcon", {"query_key_value"}},   {"bert", {"query", "value"}},
                                      {"roberta", {"query", "value"}},   {"t5", {"q", "v"}}};
  return targets;
}

DefaultTargets usual_targets_but(std::string_view model_type, const std::vector<std::string>& names) {
  DefaultTargets targets = usual_targets();
  std::erase_if(targets, [&](const auto& usual) { return usual.first == model_type; });
  targets.emplace_back(model_type, names);
  return targets;
}

const std::vector<Method>& methods() {
  // clang-format off
  static const std::vector<Method> all{
      adalora_method(),
      adamss_method(),
      adaption_prompt_method(),
      beft_method(),
      boft_method(),
      c3a_method(),
      cartridge_method(),
      cpt_method(),
      deft_method(),
      delora_method(),
      fourierft_method(),
      frod_method(),
      glora_method(),
      gralora_method(),
      hira_method(),
      hra_method(),
      ia3_method(),
      lily_method(),
      ln_tuning_method(),
      loha_method(),
      lokr_method(),
      lora_method(),
      miss_method(),
      multitask_prompt_tuning_method(),
      oft_method(),
      osf_method(),
      p_tuning_method(),
      peanut_method(),
      poly_method(),
      prefix_tuning_method(),
      prompt_tuning_method(),
      psoft_method(),
      pvera_method(),
      randlora_method(),
      road_method(),
      shira_method(),
      supertuning_method(),
      tinylora_method(),
      trainable_tokens_method(),
      unilora_method(),
      vblora_method(),
      vera_method(),
      waveft_method(),
      xlora_method(),
  };
  // clang-format on
  return all;
}

namespace {

/// What PEFT has and graft has not: what it is, and what to do instead.
struct Missing {
  std::string_view type, what;
};
constexpr Missing kMissing[] = {{"SHADOW",
                                 "it runs a decoder of its own beside the base's blocks, which no model of "
                                 "graft has. Use PEFT for it, or a "
                                 "method that is put on layers, such as LORA"}};

}  // namespace

const Method& find_method(std::string_view type) {
  std::string known;
  for (const auto& method : methods()) {
    if (method.type == type) return method;
    known += (known.empty() ? "" : ", ") + std::string(method.type);
  }
  const auto refused = "[adapters] \"peft_type\": \"" + std::string(type) + "\" is not supported";
  for (const auto& missing : kMissing)
    if (missing.type == type) throw ConfigError(refused + ": " + std::string(missing.what));
  throw ConfigError(refused + "; known: " + known);
}

}  // namespace graft::adapters
