#include "adapters/methods/lora_parameter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "adapters/methods/lora_linear.h"
#include "adapters/methods/lora_variants.h"
#include "adapters/targets.h"
#include "graft/error.h"
#include "nn/embedding.h"

namespace graft::adapters {
namespace {

/// A [r, columns] and B [rows, r] of a weight that is no linear layer's: Conv1D's, whose rows are its inputs,
/// and an embedding's.
class LoraParameter : public LoraPart {
 public:
  explicit LoraParameter(const PartBuild& build) : LoraPart(build) {
    const auto& weight = build.layer.weight;
    A = parameter(build, "lora_A.weight", {r_, weight.size(1)});
    B = parameter(build, "lora_B.weight", {weight.size(0), r_});
    finish(build);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto y = next(x);
    const auto part = gate.part(x);
    const auto* embedding = dynamic_cast<const nn::Embedding*>(&layer());
    const auto low =
        embedding ? at::embedding(B, part, embedding->padding_idx()) : at::matmul(cast_to(part, B), B);
    return gate.add(y, at::matmul(low * scaling_, A));
  }

 protected:
  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const override { return at::matmul(b, a); }
  at::Tensor factor_view(const at::Tensor& factor) const override { return factor; }  // no DoRA
};

}  // namespace

void check_target_parameters(const AdapterConfig& config) {
  if (!config.has("target_parameters")) return;
  if (!config.is_list("target_parameters"))
    throw ConfigError("[lora] \"target_parameters\" must be a list of strings");
  config.strings("target_parameters");
  const auto refuse = [](const std::string& what) {
    throw ConfigError("[lora] \"target_parameters\" does not go with " + what);
  };
  if (config.number("lora_dropout") != 0)
    refuse("\"lora_dropout\": it works on weights, not on what they are given");
  for (const char* field : {"fan_in_fan_out", "lora_bias", "use_dora"})
    if (config.boolean(field)) refuse('"' + std::string(field) + '"');
  if (has_variant(config)) refuse("a variant of LoRA");
  if (config.is_string("init_lora_weights"))
    for (const char* init : {"pissa", "olora", "orthogonal"})
      if (config.string("init_lora_weights").starts_with(init))
        refuse("\"init_lora_weights\": \"" + std::string(init) + '"');
}

std::vector<Target> named_weights(const AdapterConfig& config, const PreTrainedModel& model) {
  const auto names = config.strings("target_parameters");
  if (names.empty()) return {};
  std::set<std::string> unmatched(names.begin(), names.end());
  const auto is_meant = [&](const std::string& path) {
    bool meant = false;
    for (const auto& name : names)
      if (path == name || path.ends_with("." + name)) {
        unmatched.erase(name);
        meant = true;
      }
    return meant;
  };
  std::vector<Target> found;
  std::set<std::string> of_layers;
  for (auto& target : weighted_layers(model))
    for (const char* name : {"weight", "bias"}) {
      const auto path = target.path + "." + name;
      of_layers.insert(path);
      const auto& tensor = name == std::string_view("weight") ? target.layer->weight : target.layer->bias;
      if (!tensor.defined() || !is_meant(path)) continue;
      if (tensor.dim() != 2)
        throw ConfigError("[lora] \"target_parameters\" names \"" + path + "\", which has " +
                          std::to_string(tensor.dim()) +
                          " dimensions: only weights with rows and columns have a "
                          "low-rank change");
      found.push_back(target);
    }
  for (const auto& [path, tensor] : model.unique_parameters())
    if (!of_layers.contains(path) && is_meant(path))
      throw ConfigError("[lora] \"target_parameters\" names \"" + path +
                        "\", which is not a weight of a layer");
  if (!unmatched.empty())
    throw ConfigError("[lora] \"target_parameters\": \"" + *unmatched.begin() +
                      "\" matched no parameter of " + model.architecture());
  return found;
}

std::shared_ptr<Part> lora_parameter_part(const PartBuild& build) {
  if (build.layer.kind() == nn::LayerKind::linear) return std::make_shared<LoraLinear>(build);
  return std::make_shared<LoraParameter>(build);
}

}  // namespace graft::adapters
