#include "adapters/part.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "graft/error.h"
#include "support/regex.h"

namespace graft::adapters {

int64_t PartBuild::in_features() const {
  return layer.weight.size(
      layer.kind() == nn::LayerKind::conv1d || layer.kind() == nn::LayerKind::embedding ? 0 : 1);
}

int64_t PartBuild::out_features() const {
  return layer.weight.size(
      layer.kind() == nn::LayerKind::conv1d || layer.kind() == nn::LayerKind::embedding ? 1 : 0);
}

at::TensorOptions PartBuild::options() const {
  return at::TensorOptions(at::kFloat).device(layer.weight.device());
}

std::string PartBuild::key(std::string_view suffix) const {
  return "base_model.model." + path + "." + std::string(suffix);
}

double PartBuild::by_pattern(std::string_view field, double fallback) const {
  for (const auto& [pattern, value] : config.pattern(field))
    if (Regex("(.*\\.)?(" + pattern + ")$", "[adapters] \"" + std::string(field) + "\"").matches_start(path))
      return value;
  return fallback;
}

void PartBuild::refuse(const std::string& why) const {
  throw ConfigError("[adapters] " + config.peft_type() + " cannot be put on \"" + path + "\", which is " +
                    std::string(nn::name_of(layer.kind())) + (why.empty() ? "" : ": " + why));
}

at::Tensor Part::parameter(const PartBuild& build, std::string_view suffix, at::IntArrayRef shape,
                           bool trainable) {
  const auto given = build.source.take(build.key(suffix), shape);
  return enter(build, suffix, given.defined() ? given : at::empty(shape, build.options()), trainable);
}

at::Tensor Part::copied(const PartBuild& build, std::string_view suffix, const at::Tensor& base,
                        bool trainable) {
  const auto given = build.source.take(build.key(suffix), base.sizes());
  return enter(build, suffix, given.defined() ? given : base.detach().clone(), trainable);
}

at::Tensor Part::enter(const PartBuild& build, std::string_view suffix, const at::Tensor& tensor,
                       bool trainable) {
  std::string name(suffix);
  std::replace(name.begin(), name.end(), '.', '/');  // a module's table takes no dots
  entries_.push_back({build.key(suffix), name, trainable});
  return register_parameter(name, tensor.to(build.layer.weight.device()), /*requires_grad=*/false);
}

NamedTensors Part::stored() const {
  NamedTensors all;
  for (const auto& entry : entries_) all.emplace_back(entry.key, tensor(entry).detach());
  return all;
}

at::Tensor Part::tensor(const Entry& entry) const {
  return *named_parameters(/*recurse=*/false).find(entry.name);
}

at::Tensor cast_to(const at::Tensor& x, const at::Tensor& weight) { return x.to(weight.scalar_type()); }

at::Tensor out_in(const nn::WeightedLayer& layer, const at::Tensor& weight) {
  return layer.kind() == nn::LayerKind::conv1d ? weight.t() : weight;
}

}  // namespace graft::adapters
