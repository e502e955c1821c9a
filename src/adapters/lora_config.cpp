#include <nlohmann/json.hpp>

#include "graft/peft.h"

namespace graft {
namespace {

nlohmann::json to_json(const ModuleNames& names) {
  if (names.pattern()) return *names.pattern();
  return names.empty() ? nlohmann::json() : nlohmann::json(names.names());
}

template <class T>
nlohmann::json unless_empty(const T& value) {
  return value.empty() ? nlohmann::json() : nlohmann::json(value);
}

}  // namespace

LoraConfig::operator AdapterConfig() const {
  nlohmann::json init = init_lora_weights;
  if (init_lora_weights == "true" || init_lora_weights == "false") init = init_lora_weights == "true";
  const nlohmann::json values{{"peft_type", "LORA"},
                              {"r", r},
                              {"target_modules", to_json(target_modules)},
                              {"exclude_modules", to_json(exclude_modules)},
                              {"lora_alpha", lora_alpha},
                              {"lora_dropout", lora_dropout},
                              {"bias", bias},
                              {"use_rslora", use_rslora},
                              {"use_dora", use_dora},
                              {"lora_bias", lora_bias},
                              {"fan_in_fan_out", fan_in_fan_out},
                              {"init_lora_weights", init},
                              {"rank_pattern", nlohmann::json(rank_pattern)},
                              {"alpha_pattern", nlohmann::json(alpha_pattern)},
                              {"layers_to_transform", unless_empty(layers_to_transform)},
                              {"layers_pattern", unless_empty(layers_pattern)},
                              {"modules_to_save", unless_empty(modules_to_save)},
                              {"task_type", unless_empty(task_type)}};
  return AdapterConfig::from_json(values.dump(), "LoraConfig");
}

}  // namespace graft
