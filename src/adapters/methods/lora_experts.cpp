#include "adapters/methods/lora_experts.h"

#include <nlohmann/json.hpp>

#include "adapters/methods/lora_init.h"
#include "adapters/methods/lora_variants.h"
#include "adapters/targets.h"
#include "graft/error.h"

namespace graft::adapters {

AdapterConfig plain_lora(const std::string& folder, std::string_view who) {
  const auto config = AdapterConfig::from_pretrained(folder);
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("[adapters] the adapter in " + folder + " " + why + ": " + std::string(who) +
                      " is for plain LoRA adapters");
  };
  if (config.peft_type() != "LORA") refuse("is " + config.peft_type());
  if (has_variant(config)) refuse("is a variant of LoRA");
  if (starts_from_base(config)) refuse("was made with a start that changes the base");
  if (config.string("bias") != "none") refuse("trains biases");
  for (const char* field :
       {"modules_to_save", "trainable_token_indices", "target_parameters", "layer_replication"})
    if (config.has(field)) refuse(std::string("has \"") + field + "\"");
  return config;
}

std::shared_ptr<LoraPart> Expert::part(const PartBuild& build, std::string_view key) const {
  if (source->shapes(build.key(key)).empty()) return nullptr;
  PartBuild own{config, build.layer, build.path, *source};
  own.model = build.model;
  auto lora = std::dynamic_pointer_cast<LoraPart>(lora_method().part(own));
  lora->to_one_dtype();
  return lora;
}

std::vector<Expert> read_experts(const AdapterConfig& config, const PreTrainedModel& model) {
  const auto named = nlohmann::ordered_json::parse(config.text("adapters"));
  std::vector<std::string> folders;
  for (const auto& folder : named) folders.push_back(folder.get<std::string>());
  // PEFT's names are "0", "1" and so on, and its files have them sorted as texts.
  std::vector<std::string> numbered;
  for (size_t i = 0; named.contains(std::to_string(i)); ++i)
    numbered.push_back(named[std::to_string(i)].get<std::string>());
  std::vector<Expert> experts;
  for (const auto& folder : numbered.size() == folders.size() ? numbered : folders)
    experts.push_back({folder, with_targets(plain_lora(folder, "X-LoRA"), model)});
  return experts;
}

void finish_experts(std::vector<Expert>& experts, const PreTrainedModel& model) {
  for (auto& expert : experts) {
    expert.source->finish(model);
    expert.source.reset();
  }
}

}  // namespace graft::adapters
