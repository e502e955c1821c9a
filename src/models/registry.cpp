// The list of architectures: one line per file of this folder.
#include "graft/error.h"
#include "models/architecture.h"
#include "models/bert.h"
#include "models/bloom.h"
#include "models/convnext.h"
#include "models/dinov2.h"
#include "models/distilbert.h"
#include "models/falcon.h"
#include "models/gemma.h"
#include "models/gemma2.h"
#include "models/gpt2.h"
#include "models/gpt_neox.h"
#include "models/llama.h"
#include "models/mistral.h"
#include "models/opt.h"
#include "models/phi3.h"
#include "models/qwen2.h"
#include "models/qwen3.h"
#include "models/resnet.h"
#include "models/roberta.h"
#include "models/t5.h"
#include "models/vit.h"

namespace graft {

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = [] {
    std::vector<Architecture> list;
    for (auto* family :
         {llama_architectures,  mistral_architectures,  qwen2_architectures,      qwen3_architectures,
          gemma_architectures,  gemma2_architectures,   phi3_architectures,       gpt2_architectures,
          opt_architectures,    gpt_neox_architectures, bloom_architectures,      falcon_architectures,
          bert_architectures,   roberta_architectures,  distilbert_architectures, vit_architectures,
          dinov2_architectures, resnet_architectures,   convnext_architectures,   t5_architectures}) {
      auto rows = family();
      list.insert(list.end(), std::make_move_iterator(rows.begin()), std::make_move_iterator(rows.end()));
    }
    return list;
  }();
  return all;
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const auto& each : architectures()) names.emplace_back(each.name);
  return names;
}

std::optional<std::string> with_fragment(const std::string& path, const std::string& fragment,
                                         const std::string& by) {
  std::string padded = "." + path + ".";  // so that a fragment matches whole parts only
  const auto at = padded.find("." + fragment + ".");
  if (at == std::string::npos) return {};
  padded.replace(at + 1, fragment.size(), by);
  return padded.substr(1, padded.size() - 2);
}

std::string stored_name(const Architecture& architecture, const std::string& path) {
  std::string name = path;
  for (const auto& [fragment, stored] : architecture.stored_as)
    name = with_fragment(name, fragment, stored).value_or(name);
  return name;
}

const Architecture& find_architecture(std::string_view name) {
  std::string known;
  for (const auto& each : architectures()) {
    if (each.name == name) return each;
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  }
  throw ConfigError("[models] architecture \"" + std::string(name) + "\" is not supported; known: " + known);
}

const Architecture& find_architecture(std::string_view model_type, Task task) {
  std::string names;
  for (const auto& each : architectures()) {
    if (each.model_type != model_type) continue;
    if (each.task == task) return each;
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  if (names.empty())
    throw ConfigError("[models] model_type \"" + std::string(model_type) +
                      "\" is not supported; `graft info --architectures` lists what is");
  throw ConfigError("[models] model_type \"" + std::string(model_type) +
                    "\" has no class for this task; it has " + names);
}

}  // namespace graft
