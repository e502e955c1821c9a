#include "adapters/methods/xlora_experts.h"

#include <nlohmann/json.hpp>

#include "adapters/methods/lora_init.h"
#include "adapters/methods/lora_variants.h"
#include "adapters/targets.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

void check_plain(const AdapterConfig& config, const std::string& folder) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("[xlora] the adapter in " + folder + " " + why + ": X-LoRA is for plain LoRA adapters");
  };
  if (config.peft_type() != "LORA") refuse("is " + config.peft_type());
  if (has_variant(config)) refuse("is a variant of LoRA");
  if (starts_from_base(config)) refuse("was made with a start that changes the base");
  if (config.string("bias") != "none") refuse("trains biases");
  for (const char* field :
       {"modules_to_save", "trainable_token_indices", "target_parameters", "layer_replication"})
    if (config.has(field)) refuse(std::string("has \"") + field + "\"");
}

}  // namespace

std::vector<Expert> read_experts(const AdapterConfig& config, const PreTrainedModel& model) {
  const auto named = nlohmann::ordered_json::parse(config.text("adapters"));
  std::vector<std::string> folders;
  for (const auto& folder : named) folders.push_back(folder.get<std::string>());
  // PEFT's names are "0", "1" and so on, and its files have them sorted as texts.
  std::vector<std::string> numbered;
  for (size_t i = 0; named.contains(std::to_string(i)); ++i)
    numbered.push_back(named[std::to_string(i)].get<std::string>());
  std::vector<Expert> experts;
  for (const auto& folder : numbered.size() == folders.size() ? numbered : folders) {
    auto own = AdapterConfig::from_pretrained(folder);
    check_plain(own, folder);
    experts.push_back({folder, with_targets(own, model)});
  }
  return experts;
}

}  // namespace graft::adapters
